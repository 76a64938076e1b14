-- apart: as the authors' code for rules whose weight decay is decoupled (by shrink): the step is
-- made first, then the rule's own decay. Rules that add decay to the gradient see no weights there:
-- their weight_decay must be 0. "auto" takes a rule apart if it steps by shrink and descend alone.
-- Any other rule's weight_decay must be 0. `decay` is lr times weight decay, for rules without
-- their own; set it again when lr changes.
local low = include "directions"

return wrapper {
  name  = "galore",
  cite  = "Zhao et al. 2024, arXiv:2403.03507",
  use   = "To fit Adam's states of large matrices in memory",
  family = "low rank",
  follows = "jiaweizzhao/GaLore 2cc66f8 and the GaLore of xichen-fy/Fira 5c28b13",
  doc   = "Steps the largest directions of each gradient matrix, found anew every few hundred " ..
          "steps, " ..
          "in place of the matrix",
  args  = { "directions", "interval", "scale" },
  -- decay: added to the rule's, times lr
  hyper = { scale = { 0.25, min = 0 }, decay = { 0, min = 0, max = 1 } },
  options = { directions = 128, interval = 200, apart = { "auto", "true", "false" } },
  rank  = "directions",
  state = { P = zeros "rows rank", Q = zeros "cols rank" },
  step  = function() low.whole() end,
  matrix = function()
    local u, x, rate, amount
    if nrows < ncols then
      low.of_rows()
      x, rate, amount = inner { g = mm(P.T, g), apart = low.apart() }
      u = mm(P, x)
    else
      low.of_cols()
      x, rate, amount = inner { g = mm(g, Q), apart = low.apart() }
      u = mm(x, Q.T)
    end
    if low.apart() then
      p = shrink(descend(p, u, rate * scale), amount + decay)
    else
      p = p + scale * u
      p = p - decay * p
    end
  end,
}
