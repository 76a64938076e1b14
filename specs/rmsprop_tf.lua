-- As timm's RMSpropTF: TensorFlow's RMSprop. v starts at 1, eps is inside of the root, and lr
-- enters the momentum buffer (lr_in_momentum).
-- f32 range: v is infinite from |g| = 5.8e19 on (sqrt(3.4e38 / (1 - alpha))): the element stands
-- still from then on.
return optimizer {
  name  = "rmsprop_tf",
  cite  = "Tieleman and Hinton 2012, Coursera lecture 6.5; as in TensorFlow",
  use   = "To reproduce TensorFlow results, such as EfficientNet and MnasNet",
  family = "adagrad", follows = "timm.optim.RMSpropTF 1.0.31",
  doc   = "TensorFlow's RMSprop: v starts at 1, eps inside of the root, lr inside of the momentum",
  hyper = {
    lr = { 1e-2, min = 0 }, alpha = { 0.9, min = 0, max = 1 }, eps = { 1e-10, min = 0 },
    weight_decay = { 0, min = 0 }, momentum = { 0.9, min = 0, max = 1 },
  },
  options = { centered = false, momentum_buffer = false, decoupled_decay = false,
              lr_in_momentum = true },
  state = { v = fill(1), a = zeros, b = zeros },
  step = function()
    local d = g
    if decoupled_decay then p = shrink(p, lr * weight_decay) else d = g + weight_decay * p end
    v = alpha * v + (1 - alpha) * d * d
    local s = v
    if centered then
      a = lerp(a, d, 1 - alpha)
      s = max(v - a * a, 0)   -- a variance: only rounding makes it negative
    end
    local u = d / sqrt(s + eps)
    if not momentum_buffer then
      p = descend(p, u, lr)
    elseif lr_in_momentum then
      b = momentum * b + lr * u
      p = p - b
    else
      b = momentum * b + u
      p = descend(p, b, lr)
    end
  end,
}
