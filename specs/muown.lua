-- As Muown of NVIDIA's Emerging-Optimizers fd77292. A row of the weights is its size times a
-- direction. Muon steps the directions, Adam the sizes, and weight decay acts on the sizes. v_norm:
-- norms of the directions, which grow.
-- coefficients: "quintic" is their default, "jordan" their "simple". extra_scale_factor = 0.2
-- matches AdamW's RMS.
-- products: f16, as in muon.
return optimizer {
  name  = "muown",
  cite  = "Lion et al. 2026, arXiv:2605.10797",
  use   = "In place of Muon when row norms of the weights grow during training",
  family = "muon", follows = "NVIDIA-NeMo/Emerging-Optimizers fd77292",
  doc   = "Muon on the directions of rows and Adam on their norms; AdamW for what is no matrix",
  hyper = {
    lr = { 3e-4, min = 0 }, momentum = { 0.95, min = 0, below = 1 }, weight_decay = { 0, min = 0 },
    beta1 = { 0.9, min = 0, below = 1 }, beta2 = { 0.95, min = 0, below = 1 },
    eps = { 1e-8, min = 0 },
    extra_scale_factor = { 1, min = 0 },
  },
  options = { steps = 0, coefficients = { "quintic", "jordan", "polar_express", "cans", "turbo" } },
  products = "f16",
  state = { m = zeros, size = zeros "row", v_norm = zeros "row", m_size = zeros "row",
            v_size = zeros "row" },
  step  = rule "adamw",
  matrix = function()
    local first, n = eq(t, 1), max(rownorm(p), 1e-12)
    local s, r = where(first, n, size), where(first, n, v_norm)
    local u = p / s
    local along = rowdot(g, u)
    m = lerp(m, (s / r) * (g - u * along), 1 - momentum)
    local o = polar(m, { steps = steps, coefficients = coefficients })
    local v = u * r - (lr * extra_scale_factor * sqrt(max(nrows, ncols))) * o
    m_size = lerp(m_size, along, 1 - beta1)
    v_size = beta2 * v_size + (1 - beta2) * along * along
    s = s - lr * (m_size / (1 - beta1 ^ t)) / (sqrt(v_size / (1 - beta2 ^ t)) + eps)
    size, v_norm = s - lr * weight_decay * s, rownorm(v)
    p = size * (v / v_norm)
  end,
}
