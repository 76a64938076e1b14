-- The inner rule keeps states for a few directions of each matrix and sees no weights: its weight_decay must be
-- 0. `decay` is lr times weight decay; set it again when lr changes.
-- A multiple of g whose squares stay in range; the directions are the same.
local function unit() return g / max(slice.norm(g), 1e-37) end

return wrapper {
  name  = "galore",
  cite  = "Zhao et al. 2024, arXiv:2403.03507",
  doc   = "Steps the largest directions of each gradient matrix, found anew every few hundred steps, " ..
          "in place of the matrix",
  args  = { "directions", "interval", "scale" },
  hyper = { scale = { 0.25, min = 0 }, decay = { 0, min = 0, max = 1 } },     -- decay: lr times weight decay
  options = { directions = 128, interval = 200 },
  rank  = "directions",
  state = { P = zeros "rows rank", Q = zeros "cols rank" },
  step  = function()
    inner()
    p = p - decay * p
  end,
  matrix = function()
    local u, _
    if nrows < ncols then
      every(interval, { offset = 1 }, function() _, P = eigh(gram(unit()), "rank", { last = P }) end)
      u = mm(P, inner { g = mm(P.T, g) })
    else
      every(interval, { offset = 1 }, function() _, Q = eigh(gram(unit().T), "rank", { last = Q }) end)
      u = mm(inner { g = mm(g, Q) }, Q.T)
    end
    p = p + scale * u
    p = p - decay * p
  end,
}
