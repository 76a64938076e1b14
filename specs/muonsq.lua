-- As MuonSq of KellerJordan/modded-nanogpt f411b3d (track 3). Twelve steps of (2, -1.5, 0.5) give
-- the polar factor to the precision of products; coefficients = "jordan" with steps = 0 is Muon's
-- faster iteration.
-- products: f16, as in muon.
return optimizer {
  name  = "muonsq",
  cite  = "Muon^2, 2026, arXiv:2604.09967",
  use   = "In place of Muon when elements of the momentum differ strongly in scale",
  family = "muon", follows = "KellerJordan/modded-nanogpt f411b3d",
  doc   = "Muon of the momentum over the root of an elementwise second moment; AdamW for what " ..
          "is no matrix",
  hyper = {
    lr = { 0.02, min = 0 }, weight_decay = { 0, min = 0 }, momentum = { 0.95, min = 0, below = 1 },
    beta2 = { 0.95, min = 0, below = 1 }, eps = { 1e-10, min = 0 },
  },
  options = { nesterov = true, steps = 0,
              coefficients = { "exact", "jordan", "polar_express", "cans", "turbo" } },
  products = "f16",
  state = { m = zeros, v = zeros },
  step  = rule "adamw",
  matrix = function()
    m = lerp(m, g, 1 - momentum)
    v = beta2 * v + (1 - beta2) * g * g
    local u = m
    local set, times = coefficients, steps
    if nesterov then u = lerp(g, m, momentum) end
    if set == "exact" then set, times = { { 2, -1.5, 0.5 } }, steps == 0 and 12 or steps end
    local o = polar(u / (sqrt(v) + eps), { steps = times, coefficients = set })
    p = descend(shrink(p, lr * weight_decay), o, lr * sqrt(max(1, nrows / ncols)))
  end,
}
