-- k counts the group's steps, as the authors do, also for a tensor that joins late.
-- f32 range: n is infinite once |z| exceeds 1.8e20 (sqrt(3.4e38 / (1 - beta3))): the element stands
-- still from then on. |z| under 1e-22 adds 0 to n; eps outweighs sqrt(n) long before that.
return optimizer {
  name  = "adan",
  cite  = "Xie et al. 2022, arXiv:2208.06677",
  use   = "For vision and language models when faster convergence is worth two more states than " ..
          "AdamW",
  family = "adam", follows = "timm.optim.Adan 1.0.30",
  doc   = "Adam with Nesterov momentum estimated from differences of gradients; " ..
          "betas are decay rates (the paper's 1 - beta)",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.98, min = 0, below = 1 },
    beta2 = { 0.92, min = 0, below = 1 },
    beta3 = { 0.99, min = 0, below = 1 }, eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 },
  },
  options = { proximal = true },   -- false: weight decay as in AdamW
  state = { m = zeros, d = zeros, n = zeros, g_old = zeros, k = zeros "group" },
  step = function()
    k = k + 1
    local diff = where(eq(t, 1), 0, g - g_old)
    local z = g + beta2 * diff
    m = lerp(m, g, 1 - beta1)
    d = lerp(d, diff, 1 - beta2)
    n = beta3 * n + (1 - beta3) * z * z
    local step = { m, plus = d, rate = lr * beta2 / (1 - beta2 ^ k),
                   over = (1 / sqrt(1 - beta3 ^ k)) * sqrt(n) + eps }
    if not proximal then p = shrink(p, lr * weight_decay, "factor") end
    p = descend(p, step, lr / (1 - beta1 ^ k))
    if proximal then p = (1 / (1 + lr * weight_decay)) * p end
    g_old = g
  end,
}
