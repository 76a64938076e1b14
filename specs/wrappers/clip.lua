return wrapper {
  name  = "clip",
  cite  = "Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063",
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
