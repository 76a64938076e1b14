-- k counts the group's steps, as the authors do, also for a tensor that joins late.
-- As pytorch_optimizer's AdaGC. Up to step warmup_steps - 1 gradients are clipped by their global
-- norm, and gamma is the smallest norm of the tensor so far; then each tensor is clipped to
-- lambda_rel times its running norm gamma.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))), which clipping
-- prevents.
return optimizer {
  name  = "adagc",
  cite  = "Wang et al. 2025, arXiv:2502.11034",
  use   = "For language models whose loss spikes because single tensors get large gradients",
  family = "adam", follows = "pytorch_optimizer.AdaGC 4.1.0",
  doc   = "AdamW whose gradients are clipped tensor by tensor to a running mean of their norms",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    beta = { 0.98, min = 0, below = 1 }, lambda_abs = { 1, above = 0 },
    lambda_rel = { 1.05, above = 0 },
    warmup_steps = { 100, min = 0 }, weight_decay = { 0.1, min = 0 }, eps = { 1e-8, above = 0 },
  },
  state = { m = zeros, v = zeros, gamma = zeros "tensor", k = zeros "group" },
  step = function()
    k = k + 1
    local size, early = norm(g), either(eq(t, 1), lt(k, warmup_steps))
    local ratio = where(early, lambda_abs / (global.norm(g) + eps),
                        lambda_rel * max(gamma, eps) / max(size, eps))
    ratio = min(ratio, 1)
    gamma = where(early, where(eq(t, 1), ratio * size, min(gamma, ratio * size)),
                  lerp(gamma, ratio * size, 1 - beta))
    local x = ratio * g
    p = shrink(p, lr * weight_decay)
    m = lerp(m, x, 1 - beta1)
    v = beta2 * v + (1 - beta2) * x * x
    p = descend(p, { m, over = (1 / sqrt(1 - beta2 ^ k)) * sqrt(v) + eps }, lr / (1 - beta1 ^ k))
  end,
}
