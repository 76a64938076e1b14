-- Read the values after a step: log.gradient and others, one number per tensor. The reductions run
-- in the passes of the rule. Only matrix rules whose gradient is read by products alone need one
-- more read of it.
return wrapper {
  name  = "log",
  cite  = "You, Gitman and Ginsburg 2017, arXiv:1708.03888",
  use   = "To plot norms of gradients, updates and weights, or to raise alarms",
  family = "values", follows = "torch.optim.AdamW 2.13.0, whose weights it must not change",
  doc   = "Gives the norms of each tensor's gradient, update and weights, for plots and alarms",
  values = { gradient = "tensor", update = "tensor", weights = "tensor" },
  step  = function()
    local before, grad = p, g
    inner()
    gradient, update, weights = norm(grad), norm(p - before), norm(p)
  end,
}
