-- steps = 0: the number of steps that the coefficients were published with (jordan: 5).
-- products: f16 as in Muon. The condition is that of a matrix of signs, and the elementwise second
-- moment evens out rounding errors.
return optimizer {
  name  = "adamuon",
  cite  = "Si et al. 2025, arXiv:2507.11005",
  use   = "In place of Muon when elements of an update differ in noise",
  family = "muon", follows = "Chongjie-Si/AdaMuon 369f0b3",
  doc   = "Muon of the momentum's signs, divided by its own second moment; AdamW for what is no " ..
          "matrix",
  hyper = {
    lr = { 0.02, min = 0 }, weight_decay = { 1e-2, min = 0 },
    momentum = { 0.95, min = 0, below = 1 },
    eps = { 1e-8, min = 0 },
  },
  options = {
    nesterov = true, steps = 0, form = { "plain", "gram", "auto" },
    coefficients = { "jordan", "polar_express", "cans", "turbo" },
  },
  products = "f16",
  state = { m = zeros, v = zeros },
  step  = rule "adamw",
  matrix = function()
    m = lerp(m, g, 1 - momentum)
    local u = m
    if nesterov then u = lerp(g, m, momentum) end
    local o = polar(sign(u), { steps = steps, coefficients = coefficients, form = form })
    v = lerp(v, o * o, 1 - momentum)
    local d = o / (sqrt(v) + eps)
    p = descend(shrink(p, lr * weight_decay), d,
                lr * 0.2 * sqrt(nrows * ncols) / (slice.norm(d) + eps))
  end,
}
