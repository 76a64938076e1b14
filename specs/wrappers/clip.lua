return wrapper {
  name  = "clip",
  cite  = "Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063",
  use   = "First against exploding gradients: it is the standard for transformers",
  family = "gradient", follows = "torch.nn.utils.clip_grad_norm_ 2.13.0",
  doc   = "Scales the gradient of all tensors together down to a norm of max_norm",
  args  = { "max_norm" },
  hyper = { max_norm = { 1, min = 0, max = inf }, eps = { 1e-6, min = 0 } },
  values = { grad_norm = "group" },
  step  = function()
    grad_norm = global.norm(g)
    g = min(1, max_norm / (grad_norm + eps)) * g
    inner()
  end,
}
