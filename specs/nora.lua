-- As the authors' code (Yuan-Jinghui/Nora 925df95). The part of the momentum along each row of the
-- weights is removed, and the rest is brought to unit norm. Rows of kernels are all weights of an
-- output channel; theirs are the last axis.
-- weight_decay: 0.1 as in their get_nora_optimizer; their AdamW has betas 0.9 and 0.95.
return optimizer {
  name  = "nora",
  cite  = "Yuan et al. 2026, arXiv:2605.03769",
  use   = "In place of RMNP when norms of weight rows should grow evenly",
  family = "muon", follows = "Yuan-Jinghui/Nora 925df95",
  doc   = "Momentum without its part along the rows of weights, with rows of norm 1; AdamW for " ..
          "what is no matrix",
  hyper = {
    lr = { 5e-3, min = 0 }, momentum = { 0.95, min = 0, max = 1 },
    beta = { 0.95, min = 0, below = 1 },
    weight_decay = { 0.1, min = 0 }, eps = { 1e-10, above = 0 },
  },
  state = { m = zeros },
  step  = rule "adamw",
  matrix = function()
    m = lerp(m, g, 1 - beta)
    local u, w = lerp(g, m, momentum), p / max(rownorm(p), eps)
    local v = u - rowdot(u, w) * w
    p = shrink(p, lr * weight_decay)
    p = descend(p, v / max(rownorm(v), eps), lr * max(1, sqrt(nrows / ncols)))
  end,
}
