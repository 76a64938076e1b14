return wrapper {
  name  = "clip_norm",
  cite  = "Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063",
  doc   = "Scales each tensor's gradient down to a norm of max_norm",
  args  = { "max_norm" },
  hyper = { max_norm = { 1, min = 0, max = inf }, eps = { 1e-6, min = 0 } },
  step  = function()
    g = min(1, max_norm / (norm(g) + eps)) * g
    inner()
  end,
}
