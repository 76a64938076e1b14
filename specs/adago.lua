-- Defaults: the authors have published no code. lr, eps and v0 are those of pytorch_optimizer;
-- gamma is 1 (10 there). Equal to tinker495/optax 5e1bbd4 (a proposal for optax) without its factor
-- for the shape, which the paper lacks. steps = 0: the number of steps that the coefficients were
-- published with (jordan: 5).
-- products: f16 as in Muon; the step size comes from norms, which no product affects.
return optimizer {
  name  = "adago",
  cite  = "Zhang, Liu and Schaeffer 2025, arXiv:2509.02981",
  use   = "In place of Muon when gradient norms vary a lot and a schedule is hard to choose",
  family = "muon", follows = "tinker495/optax 5e1bbd4",
  doc   = "Muon with AdaGrad's step for each tensor, from the norms of its gradients; AdamW for " ..
          "what is no matrix",
  hyper = {
    lr = { 0.05, min = 0 }, momentum = { 0.95, min = 0, below = 1 }, gamma = { 1, above = 0 },
    eps = { 5e-4, min = 0 },
    v0 = { 1e-6, above = 0 }, weight_decay = { 0, min = 0 },
  },
  options = {
    steps = 0, form = { "plain", "gram", "auto" },
    coefficients = { "jordan", "polar_express", "cans", "turbo" },
  },
  products = "f16",
  state = { m = zeros, v = zeros "tensor" },    -- v: the sum of squares without v0 ^ 2
  step  = rule "adamw",
  matrix = function()
    m = lerp(m, g, 1 - momentum)
    local size = min(norm(g), gamma)
    v = v + size * size
    local rate = max(eps, lr * size / sqrt(v + v0 * v0))
    p = p - lr * weight_decay * p
    p = p - rate * polar(m, { steps = steps, coefficients = coefficients, form = form })
  end,
}
