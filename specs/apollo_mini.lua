-- As the authors' code (zhuhanqing/APOLLO 76b3472) with their settings for APOLLO-Mini: one
-- direction, and one scale for the whole matrix. Its states are two values for each element of the
-- longer side. growth: as in apollo.
-- products: f32. The step uses the projection only through its norm.
return optimizer {
  name  = "apollo_mini",
  cite  = "Zhu et al. 2024, arXiv:2412.05270",
  use   = "When memory must be close to that of plain SGD in language-model training",
  family = "small state", follows = "zhuhanqing/APOLLO 76b3472",
  doc   = "Gradients scaled matrix by matrix as Adam would scale one random direction of them; " ..
          "AdamW for the rest",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-6, min = 0 }, weight_decay = { 0, min = 0 }, scale = { 128, min = 0 },
    growth = { 1.01, above = 0 },
  },
  options = { update_proj_gap = 200, scale_front = false, disable_nl = false },
  products = "f32",
  state = { P = zeros "row", Q = zeros "col", m = zeros "col", v = zeros "col",
            m_tall = zeros "row",
            v_tall = zeros "row", last = zeros "slice" },
  step  = rule "adamw",
  matrix = function()
    local x, r
    if nrows < ncols then
      every(update_proj_gap, { offset = 1 }, function() P = normal "row" end)
      r = colsum(P * g)
      m = lerp(m, r, 1 - beta1)
      v = beta2 * v + (1 - beta2) * r * r
      x = m / (sqrt(v) + eps)
    else
      every(update_proj_gap, { offset = 1 }, function() Q = normal "col" end)
      r = rowsum(g * Q)
      m_tall = lerp(m_tall, r, 1 - beta1)
      v_tall = beta2 * v_tall + (1 - beta2) * r * r
      x = m_tall / (sqrt(v_tall) + eps)
    end
    local size = slice.norm(x) / (slice.norm(r) + 1e-8)
    if scale_front then size = sqrt(scale) * size end
    if not disable_nl then
      local n = size * slice.norm(g)
      local over = where(gt(last, 0), max(n / (last + 1e-8), growth) / growth, 1)
      last = n / over
      size = size / over
    end
    if not scale_front then size = sqrt(scale) * size end
    p = descend(p, g, lr * sqrt(1 - beta2 ^ t) / (1 - beta1 ^ t) * size)
    p = shrink(p, lr * weight_decay)
  end,
}
