-- GaLore that also steps the rest of the gradient, scaled as the rule scales its directions, column
-- by column (row by row for tall matrices).
-- apart: as the authors' code, for rules whose weight decay is decoupled (by shrink). The growth
-- limiter sees the rest without lr, then the step is made, then the rule's own decay. Two
-- differences remain: with AdamW the limiter also sees the corrections of bias, and after a zero
-- rest growth is free. Rules that add decay to the gradient see no
-- weights there: their weight_decay must be 0. "auto" takes a rule apart if it steps by shrink and
-- descend alone. Of any other rule the limiter measures the step with lr in it: during a warm-up
-- the rest moves by less than a tenth of theirs. For scale other than 1 the authors subtract scale
-- times the projected part from the gradient, and so does a rule taken apart; of any other all of
-- that part is subtracted, and its weight_decay must be 0. `decay` is lr times weight decay, for
-- rules without their own.
local low = include "directions"

return wrapper {
  name  = "fira",
  cite  = "Chen et al. 2024, arXiv:2410.01623",
  use   = "In place of galore when quality matters more than the cost of a full gradient pass",
  family = "low rank",
  follows = "xichen-fy/Fira 5c28b13; with apart=false also arXiv:2410.01623, transcribed",
  doc   = "GaLore that also steps what the directions leave of the gradient, " ..
          "with its growth from step to step limited",
  args  = { "directions", "interval", "scale" },
  hyper = {
    scale = { 1, min = 0 }, growth = { 1.01, min = 1 }, eps = { 1e-8, min = 0 },
    decay = { 0, min = 0, max = 1 },            -- added to the rule's own decay, times lr
  },
  options = { directions = 128, interval = 200, apart = { "auto", "true", "false" } },
  rank  = "directions",
  state = { P = zeros "rows rank", Q = zeros "cols rank", last = zeros "slice" },
  step  = function() low.whole() end,
  matrix = function()
    local x, d, u, rest, rate, amount
    local split = low.apart()
    local function kept(y) if split then return scale * y else return y end end
    if nrows < ncols then
      low.of_rows()
      x = mm(P.T, g)
      d, rate, amount = inner { g = x, apart = split }
      u, rest = mm(P, d), (colnorm(d) / (colnorm(x) + eps)) * (g - kept(mm(P, x)))
    else
      low.of_cols()
      x = mm(g, Q)
      d, rate, amount = inner { g = x, apart = split }
      u, rest = mm(d, Q.T), (rownorm(d) / (rownorm(x) + eps)) * (g - kept(mm(x, Q.T)))
    end
    local n, before = slice.norm(rest), last
    if split then before = last + eps end
    local over = where(gt(last, 0), max(n / before, growth) / growth, 1)
    last = n / over
    if split then
      p = shrink(descend(p, scale * u + rest / over, rate), amount + decay)
    else
      p = p + scale * u - rest / over
      p = p - decay * p
    end
  end,
}
