-- apart=true: as the authors' code, for rules whose weight decay is decoupled (by shrink): the step is made first,
-- then the rule's own decay. Rules that add decay to the gradient see no weights there: their weight_decay must be 0.
-- Without it the inner rule's weight_decay must be 0, and `decay` is lr times weight decay; set it again when lr
-- changes.
-- A multiple of g whose squares stay in range; the directions are the same.
local function unit() return g / max(slice.norm(g), 1e-37) end

return wrapper {
  name  = "galore",
  cite  = "Zhao et al. 2024, arXiv:2403.03507",
  use   = "To fit Adam's states of large matrices in memory",
  family = "low rank", follows = "jiaweizzhao/GaLore 2cc66f8 and the GaLore of xichen-fy/Fira 5c28b13",
  doc   = "Steps the largest directions of each gradient matrix, found anew every few hundred steps, " ..
          "in place of the matrix",
  args  = { "directions", "interval", "scale" },
  hyper = { scale = { 0.25, min = 0 }, decay = { 0, min = 0, max = 1 } },     -- decay: lr times weight decay
  options = { directions = 128, interval = 200, apart = false },
  rank  = "directions",
  state = { P = zeros "rows rank", Q = zeros "cols rank" },
  step  = function()
    if apart then
      local x, rate, amount = inner { apart = true }
      p = shrink(descend(p, x, rate), amount)
    else
      inner()
      p = p - decay * p
    end
  end,
  matrix = function()
    local u, x, rate, amount, _
    if nrows < ncols then
      every(interval, { offset = 1 }, function() _, P = eigh(gram(unit()), "rank", { last = P }) end)
      x, rate, amount = inner { g = mm(P.T, g), apart = apart }
      u = mm(P, x)
    else
      every(interval, { offset = 1 }, function() _, Q = eigh(gram(unit().T), "rank", { last = Q }) end)
      x, rate, amount = inner { g = mm(g, Q), apart = apart }
      u = mm(x, Q.T)
    end
    if apart then
      p = shrink(descend(p, u, rate * scale), amount)
    else
      p = p + scale * u
      p = p - decay * p
    end
  end,
}
