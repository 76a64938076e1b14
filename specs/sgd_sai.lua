-- As the authors' code (AnonymousAlethiometer/SGD_SaI 1.0.3). The scale of a tensor is set by its
-- first gradient: norm over standard deviation. The deviation of a tensor with one element counts
-- as 0, so that its scale is |g| / eps, as in their code: give scalars another rule or a larger
-- eps. Their code fails with momentum 0; here it is plain SGD.
return optimizer {
  name  = "sgd_sai",
  cite  = "Xu et al. 2024, arXiv:2412.11768",
  use   = "For transformers when only momentum fits in memory",
  family = "momentum", follows = "AnonymousAlethiometer/SGD_SaI e213080",
  doc   = "Momentum whose rate for each tensor is fixed at the start by the signal-to-noise " ..
          "ratio of its gradient",
  hyper = {
    lr = { 1e-2, min = 0 }, momentum = { 0.9, min = 0, below = 1 }, eps = { 1e-8, above = 0 },
    weight_decay = { 1e-2, min = 0 },
  },
  state = { b = zeros, gsnr = zeros "tensor" },
  step = function()
    local first, size, total = eq(t, 1), norm(g), sum(g)
    local sigma = sqrt(max(size ^ 2 - total * total / numel, 0) / max(numel - 1, 1))
    gsnr = where(first, size / (sigma + eps), gsnr)
    b = lerp(b, g, where(first, 1, 1 - momentum))
    p = shrink(p, lr * weight_decay)
    p = descend(p, b, lr * gsnr)
  end,
}
