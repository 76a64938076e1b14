-- As Spel of NVIDIA's Emerging-Optimizers fd77292: Muon on the Stiefel manifold. Weights are made
-- orthogonal after every step, from the first on. coefficients: "jordan" is their "simple".
-- products: f16, as in muon.
return optimizer {
  name  = "spel",
  cite  = "Manifold constrained steepest descent, 2026, arXiv:2601.21487",
  use   = "For matrices that should stay orthogonal during training",
  family = "muon", follows = "NVIDIA-NeMo/Emerging-Optimizers fd77292",
  doc   = "Muon for matrices that stay orthogonal; AdamW for what is no matrix",
  hyper = { lr = { 3e-4, min = 0 }, momentum = { 0.95, min = 0, below = 1 },
            weight_decay = { 0.1, min = 0 } },
  options = { nesterov = false, steps = 0,
              coefficients = { "quintic", "jordan", "polar_express", "cans", "turbo" } },
  products = "f16",
  state = { m = zeros },
  step  = rule "adamw",
  matrix = function()
    p = p - lr * weight_decay * p
    m = lerp(m, g, 1 - momentum)
    local u = m
    if nesterov then u = lerp(g, m, momentum) end
    local how = { steps = steps, coefficients = coefficients }
    local o = polar(u, how)
    local moved = p - lr * o
    p = polar(moved, how)
  end,
}
