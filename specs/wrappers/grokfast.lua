-- As gradfilter_ema of the authors' code (ironjr/grokfast 93b2248): the average starts at the first
-- gradient.
return wrapper {
  name  = "grokfast",
  cite  = "Lee et al. 2024, arXiv:2405.20233",
  use   = "When a model memorises early and generalises late (grokking)",
  family = "gradient", follows = "ironjr/grokfast 93b2248",
  doc   = "Adds lamb times the running mean of gradients to each gradient: amplifies their slow " ..
          "part",
  args  = { "alpha", "lamb" },
  hyper = { alpha = { 0.98, min = 0, below = 1 }, lamb = { 2, min = 0 } },
  state = { avg = zeros },
  step  = function()
    avg = lerp(avg, g, where(eq(t, 1), 1, 1 - alpha))
    g = g + lamb * avg
    inner()
  end,
}
