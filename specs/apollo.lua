-- As the authors' code (zhuhanqing/APOLLO 76b3472) with random projections. Adam's moments are kept
-- for a projection of the gradient to `directions` rows or columns, and tell how to scale each
-- column (row) of the gradient itself. The projection is drawn anew every update_proj_gap steps.
-- directions: their rank; if it exceeds the shorter side of a matrix, that side is taken. The norm
-- of a step grows by at most `growth`; after a zero gradient it is free, while theirs then starts
-- at 1e-8.
-- products: f32. Column norms of the projection are all that is used of it.
return optimizer {
  name  = "apollo",
  cite  = "Zhu et al. 2024, arXiv:2412.05270",
  use   = "To pre-train large language models when AdamW's states do not fit",
  family = "small state", follows = "zhuhanqing/APOLLO 76b3472",
  doc   = "Gradients scaled column by column as Adam would scale a random projection of them; " ..
          "AdamW for the rest",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-6, min = 0 }, weight_decay = { 0, min = 0 }, scale = { 1, min = 0 },
    growth = { 1.01, above = 0 },
  },
  options = { directions = 256, update_proj_gap = 200, scale_front = false, disable_nl = false },
  rank  = "directions",
  products = "f32",
  state = { P = zeros "rows rank", Q = zeros "cols rank", m = zeros "rank cols",
            v = zeros "rank cols",
            m_tall = zeros "rows rank", v_tall = zeros "rows rank", last = zeros "slice" },
  step  = rule "adamw",
  matrix = function()
    local size
    if nrows < ncols then
      local k = min(nrows, directions)
      every(update_proj_gap, { offset = 1 }, function() P = normal "rows rank" / sqrt(k) end)
      local r = mm(P.T, g)
      m = lerp(m, r, 1 - beta1)
      v = beta2 * v + (1 - beta2) * r * r
      size = colnorm(m / (sqrt(v) + eps)) / (colnorm(r) + 1e-8)
    else
      local k = min(ncols, directions)
      every(update_proj_gap, { offset = 1 }, function() Q = normal "cols rank" / sqrt(k) end)
      local r = mm(g, Q)
      m_tall = lerp(m_tall, r, 1 - beta1)
      v_tall = beta2 * v_tall + (1 - beta2) * r * r
      size = rownorm(m_tall / (sqrt(v_tall) + eps)) / (rownorm(r) + 1e-8)
    end
    local x = size * g
    if scale_front then x = sqrt(scale) * x end
    if not disable_nl then
      local n = slice.norm(x)
      local over = where(gt(last, 0), max(n / (last + 1e-8), growth) / growth, 1)
      last = n / over
      x = x / over
    end
    if not scale_front then x = sqrt(scale) * x end
    p = descend(p, x, lr * sqrt(1 - beta2 ^ t) / (1 - beta1 ^ t))
    p = shrink(p, lr * weight_decay)
  end,
}
