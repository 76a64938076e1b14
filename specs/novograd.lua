-- lr is that of NVIDIA's class (Jasper) and timm's. beta2 is the paper's and timm's; NVIDIA's class
-- has 0.
-- f32 range: v is kept in f64 and takes every finite f32 gradient. (1 / norm as a factor loses
-- digits for norms over 8e37.) Gradients in f64 have infinite squares from a norm of 1.3e154 on:
-- the tensor becomes NaN. out_of_range (optc_read_value) of a tensor is 1 at steps whose v is not
-- finite.
return optimizer {
  name  = "novograd",
  cite  = "Ginsburg et al. 2019, arXiv:1905.11286",
  use   = "For speech and vision models with large batches; its second moment is one value per " ..
          "tensor",
  family = "layerwise", follows = "timm.optim.NvNovoGrad 1.0.30",
  doc   = "Momentum of gradients normalised by one second moment a tensor, with weight decay " ..
          "inside the momentum",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.95, min = 0, below = 1 },
    beta2 = { 0.98, min = 0, below = 1 },
    eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 },
  },
  options = { grad_averaging = false, amsgrad = false },
  state = { m = zeros, v = zeros "tensor", vmax = zeros "tensor" },
  values = { out_of_range = "tensor" },
  step = function()
    local n = norm(g)
    v = lerp(v, n * n, where(eq(t, 1), 1, 1 - beta2))
    out_of_range = where(isfinite(v), 0, 1)
    local w = v
    if amsgrad then
      vmax = max(vmax, v)
      w = vmax
    end
    local d = (1 / (sqrt(w) + eps)) * g + weight_decay * p
    if grad_averaging then d = (1 - beta1) * d end
    m = beta1 * m + d
    p = descend(p, m, lr)
  end,
}
