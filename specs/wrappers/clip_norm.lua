return wrapper {
  name  = "clip_norm",
  cite  = "Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063",
  use   = "When a single tensor must not scale down the gradients of the others",
  family = "gradient", follows = "torch.nn.utils.clip_grad_norm_ 2.13.0, tensor by tensor",
  doc   = "Scales each tensor's gradient down to a norm of max_norm",
  args  = { "max_norm" },
  hyper = { max_norm = { 1, min = 0, max = inf }, eps = { 1e-6, min = 0 } },
  values = { grad_norm = "tensor" },
  step  = function()
    grad_norm = norm(g)
    g = min(1, max_norm / (grad_norm + eps)) * g
    inner()
  end,
}
