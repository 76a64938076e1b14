-- As optax.contrib.cocob: the paper's algorithm 2, element by element. lr multiplies gradients,
-- which hardly changes the result.
-- f32 range: |g| up to 1e37 / steps.
return optimizer {
  name  = "cocob",
  cite  = "Orabona and Tommasi 2017, arXiv:1705.07795",
  use   = "When no rate is known and tuning is impossible; it needs twenty bytes per element of " ..
          "state",
  family = "no rate", follows = "optax.contrib.cocob 0.2.8",
  doc   = "Bets on coins: SGD without a rate, element by element; lr stays 1",
  hyper = {
    lr = { 1, min = 0 }, alpha = { 100, above = 0 }, eps = { 1e-8, above = 0 },
    weight_decay = { 0, min = 0 },
  },
  state = { x0 = copy(p), theta = zeros, scale = fill(eps), total = zeros, reward = zeros },
  step = function()
    local d = lr * (g + weight_decay * p)
    scale = max(scale, abs(d))
    total = total + abs(d)
    reward = max(reward - d * (p - x0), 0)
    theta = theta - d
    p = x0 + theta / scale / max(total + scale, alpha * scale) * (scale + reward)
  end,
}
