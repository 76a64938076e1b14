-- GaLore that also steps the rest of the gradient, scaled as the rule scales its directions, column by column
-- (row by row for tall matrices). Difference from the authors' code: their growth limiter measures the rest
-- before learning rate and bias correction, this one measures the step, which contains both. During a warm-up
-- and in Adam's first steps, the rest moves by less than a tenth of theirs; a wrapper cannot read the rule's
-- rate yet. For scale other than 1 the authors subtract scale times the projected part from the gradient, this
-- wrapper all of it.
-- The inner rule sees no weights: its weight_decay must be 0, and `decay` is lr times weight decay.
-- A multiple of g whose squares stay in range; the directions are the same.
local function unit() return g / max(slice.norm(g), 1e-37) end

return wrapper {
  name  = "fira",
  cite  = "Chen et al. 2024, arXiv:2410.01623",
  doc   = "GaLore that also steps what the directions leave of the gradient, " ..
          "with its growth from step to step limited. Differs from its authors under a changing rate: see the head",
  args  = { "directions", "interval", "scale" },
  hyper = {
    scale = { 1, min = 0 }, growth = { 1.01, min = 1 }, eps = { 1e-8, min = 0 },
    decay = { 0, min = 0, max = 1 },            -- lr times weight decay
  },
  options = { directions = 128, interval = 200 },
  rank  = "directions",
  state = { P = zeros "rows rank", Q = zeros "cols rank", last = zeros "slice" },
  step  = function()
    inner()
    p = p - decay * p
  end,
  matrix = function()
    local x, u, rest, _
    if nrows < ncols then
      every(interval, { offset = 1 }, function() _, P = eigh(gram(unit()), "rank", { last = P }) end)
      x = mm(P.T, g)
      local d = inner { g = x }
      u, rest = mm(P, d), (colnorm(d) / (colnorm(x) + eps)) * (g - mm(P, x))
    else
      every(interval, { offset = 1 }, function() _, Q = eigh(gram(unit().T), "rank", { last = Q }) end)
      x = mm(g, Q)
      local d = inner { g = x }
      u, rest = mm(d, Q.T), (rownorm(d) / (rownorm(x) + eps)) * (g - mm(x, Q.T))
    end
    local n = slice.norm(rest)
    local over = where(gt(last, 0), max(n / last, growth) / growth, 1)
    last = n / over
    p = p + scale * u - rest / over
    p = p - decay * p
  end,
}
