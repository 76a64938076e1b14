-- steps = 0: the number of steps that the coefficients were published with (jordan: 5).
-- products: f16 as in Muon; a rounding error in the length of a row is divided out again.
return optimizer {
  name  = "normuon",
  cite  = "Li et al. 2025, arXiv:2510.05491",
  use   = "In place of Muon when neurons get updates of very different size",
  family = "muon", follows = "zichongli5/NorMuon d45c9a4 and pytorch_optimizer.NorMuon 4.1.0",
  doc   = "Muon whose rows are brought to equal size by a second moment each; AdamW for what is " ..
          "no matrix",
  hyper = {
    lr = { 0.02, min = 0 }, weight_decay = { 0, min = 0 }, momentum = { 0.95, min = 0, below = 1 },
    beta2 = { 0.95, min = 0, below = 1 }, eps = { 1e-10, min = 0 },
  },
  options = {
    nesterov = true, steps = 0, form = { "plain", "gram", "auto" },
    coefficients = { "jordan", "polar_express", "cans", "turbo" },
    -- scale: keep is the norm before the division times Muon's scale (authors' code); rms is 0.2
    -- per element (paper)
    scale = { "keep", "rms" },
  },
  products = "f16",
  state = { m = zeros, v = zeros "row" },
  step  = rule "adamw",
  matrix = function()
    m = lerp(m, g, 1 - momentum)
    local u = m
    if nesterov then u = lerp(g, m, momentum) end
    local o = polar(u, { steps = steps, coefficients = coefficients, form = form })
    v = lerp(v, rowmean(o * o), 1 - beta2)
    local d = o / (sqrt(v) + eps)
    local size = 0.2 * sqrt(nrows * ncols)
    if scale == "keep" then size = slice.norm(o) * sqrt(max(1, nrows / ncols)) end
    p = descend(shrink(p, lr * weight_decay), d, lr * size / (slice.norm(d) + eps))
  end,
}
