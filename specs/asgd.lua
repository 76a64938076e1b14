-- As torch.optim.ASGD: ax is the average of the weights from step t0 on. The rate eta of a step and
-- the weight mu of the average come from lr and t0 of the step before it, as in torch.
return optimizer {
  name  = "asgd",
  cite  = "Polyak and Juditsky 1992, SIAM J. Control Optim. 30(4)",
  use   = "For convex or linear models, where the average of the iterates is the result",
  family = "momentum", follows = "torch.optim.ASGD 2.13.0",
  doc   = "SGD with a decaying rate that keeps the average of its weights in ax",
  hyper = {
    lr = { 1e-2, min = 0 }, lambd = { 1e-4, min = 0 }, alpha = { 0.75, min = 0 },
    t0 = { 1e6, min = 0 },
    weight_decay = { 0, min = 0 },
  },
  state = { ax = copy(p), eta = zeros "tensor", mu = fill(1, "tensor") },
  step = function()
    local rate = where(eq(t, 1), lr, eta)
    local d = g + weight_decay * p
    p = p - (lambd * rate) * p
    p = p - rate * d
    ax = lerp(ax, p, mu)
    mu = 1 / max(1, t - t0)
    eta = lr / (1 + lambd * lr * t) ^ alpha
  end,
}
