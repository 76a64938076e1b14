-- k counts the group's steps, as the authors do, also for a tensor that joins late.
-- As pytorch_optimizer's StableSPAM without its schedule of betas (t_max). At steps that are
-- multiples of update_proj_gap the moments start again; `since` counts the steps since then.
-- f32 range: gradients are normalised by their norms: every finite f32 gradient is taken.
return optimizer {
  name  = "stable_spam",
  cite  = "Huang et al. 2025, arXiv:2502.17055",
  use   = "For training in 4-bit precision, where gradients spike",
  family = "adam", follows = "pytorch_optimizer.StableSPAM 4.1.0",
  doc   = "Adam on gradients whose spikes and norms are clipped to running means, with moments " ..
          "that start again",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    gamma1 = { 0.7, min = 0, below = 1 }, gamma2 = { 0.9, min = 0, below = 1 },
    theta = { 0.999, min = 0, below = 1 }, weight_decay = { 0, min = 0 }, eps = { 1e-8, above = 0 },
  },
  options = { update_proj_gap = 1000 },
  state = {
    m = zeros, v = zeros, m_norm = zeros "tensor", v_norm = zeros "tensor", m_max = zeros "tensor",
    since = zeros "group", k = zeros "group",
  },
  step = function()
    k = k + 1
    p = shrink(p, lr * weight_decay)
    every(update_proj_gap, function() m, v, since = 0, 0, 0 end)
    since = since + 1
    local top = max(abs(g))
    m_max = lerp(m_max, top, 1 - theta)
    local most = m_max / (1 - theta ^ k)
    local x = where(gt(abs(g), most), (1 / top) * g * most, g)
    local size = norm(x)
    when(gt(size, 0), function()
      m_norm = lerp(m_norm, size, 1 - gamma1)
      v_norm = lerp(v_norm, size * size, 1 - gamma2)
      local target = m_norm / (1 - gamma1 ^ k) / (sqrt(v_norm / (1 - gamma2 ^ k)) + eps)
      x = (target / size) * x
      m = lerp(m, x, 1 - beta1)
      v = beta2 * v + (1 - beta2) * x * x
      local root = (1 / sqrt(1 - beta2 ^ since)) * sqrt(v) + eps
      p = descend(p, { m, over = root }, lr / (1 - beta1 ^ since))
    end)
  end,
}
