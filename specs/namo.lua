-- As AdaptiveMuon of NVIDIA's Emerging-Optimizers fd77292 with moment2_method namo; adamuon and
-- normuon are rules of their own here. The paper has bias corrections that their code leaves out.
-- lr, momentum and weight_decay are those of their Muon; AdaptiveMuon has no defaults of these.
-- coefficients: "quintic" is their default, and "jordan" is their "simple".
-- products: f16, as in muon.
return optimizer {
  name  = "namo",
  cite  = "NAMO, 2026, arXiv:2602.17080",
  use   = "In place of Muon when the step should shrink as gradients become noisy",
  family = "muon", follows = "NVIDIA-NeMo/Emerging-Optimizers fd77292",
  doc   = "Muon scaled by the norm of the momentum over the root mean square of gradient norms; " ..
          "AdamW for the rest",
  hyper = {
    lr = { 3e-4, min = 0 }, momentum = { 0.95, min = 0, below = 1 },
    weight_decay = { 0.01, min = 0 },
    extra_scale_factor = { 1, min = 0 }, beta2 = { 0.95, min = 0, below = 1 },
    eps = { 1e-8, above = 0 },
  },
  options = {
    nesterov = false, steps = 0,
    coefficients = { "quintic", "jordan", "polar_express", "cans", "turbo" },
  },
  products = "f16",
  state = { m = zeros, v = zeros "slice" },
  step  = rule "adamw",
  matrix = function()
    m = lerp(m, g, 1 - momentum)
    v = beta2 * v + (1 - beta2) * slice.norm(g) ^ 2
    local u = m
    if nesterov then u = lerp(g, m, momentum) end
    local o = polar(u, { steps = steps, coefficients = coefficients })
    local size = slice.norm(u) / (sqrt(v) + eps) * sqrt(max(nrows, ncols))
    p = descend(shrink(p, lr * weight_decay), o, lr * extra_scale_factor * size)
  end,
}
