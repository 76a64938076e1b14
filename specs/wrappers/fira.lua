-- GaLore that also steps the rest of the gradient, scaled as the rule scales its directions, column by column
-- (row by row for tall matrices).
-- apart=true: as the authors' code, for rules whose weight decay is decoupled (by shrink). The growth limiter sees the
-- rest without lr, then the step is made, then the rule's own decay. Two differences remain: with AdamW the limiter
-- also sees the corrections of bias, and after a zero rest growth is free. Rules that add decay to the gradient see no
-- weights there: their weight_decay must be 0.
-- Without it the limiter measures the step with lr in it: during a warm-up the rest moves by less than a tenth of
-- theirs. For scale other than 1 the authors subtract scale times the projected part from the gradient, and so does
-- apart=true; without it all of that part is subtracted. The inner rule's weight_decay must be 0, and `decay` is lr
-- times weight decay.
-- A multiple of g whose squares stay in range; the directions are the same.
local function unit() return g / max(slice.norm(g), 1e-37) end

return wrapper {
  name  = "fira",
  cite  = "Chen et al. 2024, arXiv:2410.01623",
  use   = "In place of galore when quality matters more than the cost of a full gradient pass",
  family = "low rank", follows = "xichen-fy/Fira 5c28b13; without apart=true also arXiv:2410.01623, transcribed",
  doc   = "GaLore that also steps what the directions leave of the gradient, " ..
          "with its growth from step to step limited; apart=true is as the authors have it",
  args  = { "directions", "interval", "scale" },
  hyper = {
    scale = { 1, min = 0 }, growth = { 1.01, min = 1 }, eps = { 1e-8, min = 0 },
    decay = { 0, min = 0, max = 1 },            -- lr times weight decay
  },
  options = { directions = 128, interval = 200, apart = false },
  rank  = "directions",
  state = { P = zeros "rows rank", Q = zeros "cols rank", last = zeros "slice" },
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
    local x, d, u, rest, rate, amount, _
    local function kept(y) if apart then return scale * y else return y end end
    if nrows < ncols then
      every(interval, { offset = 1 }, function() _, P = eigh(gram(unit()), "rank", { last = P }) end)
      x = mm(P.T, g)
      d, rate, amount = inner { g = x, apart = apart }
      u, rest = mm(P, d), (colnorm(d) / (colnorm(x) + eps)) * (g - kept(mm(P, x)))
    else
      every(interval, { offset = 1 }, function() _, Q = eigh(gram(unit().T), "rank", { last = Q }) end)
      x = mm(g, Q)
      d, rate, amount = inner { g = x, apart = apart }
      u, rest = mm(d, Q.T), (rownorm(d) / (rownorm(x) + eps)) * (g - kept(mm(x, Q.T)))
    end
    local n, before = slice.norm(rest), last
    if apart then before = last + eps end
    local over = where(gt(last, 0), max(n / before, growth) / growth, 1)
    last = n / over
    if apart then
      p = shrink(descend(p, scale * u + rest / over, rate), amount)
    else
      p = p + scale * u - rest / over
      p = p - decay * p
    end
  end,
}
