-- As gradfilter_ma of the authors' code (ironjr/grokfast 93b2248), with a running sum of the
-- window. A second sum starts anew with each window and replaces the first at its end, so that
-- rounding errors do not grow.
return wrapper {
  name  = "grokfast_ma",
  cite  = "Lee et al. 2024, arXiv:2405.20233",
  use   = "In place of grokfast when the mean should forget gradients after a fixed number of " ..
          "steps",
  family = "gradient", follows = "ironjr/grokfast 93b2248",
  doc   = "Adds lamb times the mean of the last window_size gradients to each gradient: " ..
          "amplifies their slow part",
  args  = { "window_size", "lamb" },
  hyper = { lamb = { 5, min = 0 } },
  options = { window_size = 100, filter_type = { "mean", "sum" }, warmup = true },
  state = { grads = ring(window_size), total = zeros { type = "f32" },
            anew = zeros { type = "f32" } },
  step  = function()
    local old = grads[window_size]
    grads:push(g)
    total, anew = total + g - old, anew + g
    when(eq(t, window_size * floor(t / window_size)), function() total, anew = anew, 0 end)
    local n, slow = grads.count, total
    if filter_type == "mean" then slow = total / n end
    if warmup then slow = where(eq(n, window_size), slow, 0) end
    g = g + lamb * slow
    inner()
  end,
}
