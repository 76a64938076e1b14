-- Defaults: lr, alpha and eps are torch's. The lecture has alpha 0.9, no eps and no lr.
-- f32 range: v is infinite from |g| = 1.8e20 on (sqrt(3.4e38 / (1 - alpha))), as in torch: the
-- element stands still from then on; centered gives NaN once |a| exceeds 1.8e19, as in torch. |g|
-- under 1e-22 adds 0 to v; eps outweighs sqrt(v) long before that.
return optimizer {
  name  = "rmsprop",
  cite  = "Tieleman and Hinton 2012, Coursera lecture 6.5; centred: Graves 2013, arXiv:1308.0850",
  use   = "For reinforcement learning and recurrent networks, and to reproduce torch results",
  family = "adagrad", follows = "torch.optim.RMSprop 2.13.0",
  doc   = "Gradients divided by their running RMS; centred takes the running mean out, " ..
          "momentum_buffer adds momentum",
  hyper = {
    lr = { 1e-2, min = 0 }, alpha = { 0.99, min = 0, max = 1 },
    momentum = { 0.9, min = 0, max = 1 },
    eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 },
  },
  options = { centered = false, momentum_buffer = false },
  state = { v = zeros, a = zeros, b = zeros },
  step = function()
    local d = g + weight_decay * p
    v = alpha * v + (1 - alpha) * d * d
    local s = v
    if centered then
      a = lerp(a, d, 1 - alpha)
      s = max(v - a * a, 0)   -- a variance: only rounding makes it negative
    end
    local u = d / (sqrt(s) + eps)
    if momentum_buffer then
      b = momentum * b + u
      u = b
    end
    p = descend(p, u, lr)
  end,
}
