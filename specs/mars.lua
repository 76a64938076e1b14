-- As the authors' code (AGI-Arena/MARS 4831e28) with is_approx: the last gradient stands in for the
-- gradient of the new batch at the old weights. Tensors that are no matrix take AdamW with lr_1d,
-- beta1_1d, beta2_1d and weight_decay_1d, unless optimize_1d. The authors count 2-D tensors alone
-- as matrices; here convolutions are matrices too, as in timm. They scale lr_1d with lr: a schedule
-- sets both. The type shampoo has Muon's factor.
-- products: f16, as in Muon. The type shampoo has no eps; the authors add theirs to the norm.
-- f32 range: the clipped gradient is at most 1 where optimize_1d or a matrix; AdamW has the range
-- of adamw.
local function largest()
  if not amsgrad then return v end
  vmax = max(vmax, v)
  return vmax
end

local function mars(is_matrix)
  local c = g + (gamma * beta1 / (1 - beta1)) * (g - last_grad)
  c = (1 / max(norm(c), 1)) * c
  m = lerp(m, c, 1 - beta1)
  last_grad = g
  local u
  if mars_type == "lion" then
    u = sign(m)
  elseif mars_type == "shampoo" and is_matrix then
    u = sqrt(max(1, nrows / ncols)) * polar(m)
  else
    v = beta2 * v + (1 - beta2) * c * c
    u = (1 / (1 - beta1 ^ t)) * m / ((1 / sqrt(1 - beta2 ^ t)) * sqrt(largest()) + eps)
  end
  p = descend(p, u, lr, weight_decay)
end

return optimizer {
  name  = "mars",
  cite  = "Yuan et al. 2024, arXiv:2411.10438",
  use   = "For language models when reduced gradient variance is worth one more state",
  family = "adam", follows = "AGI-Arena/MARS 4831e28",
  doc   = "AdamW, Lion or Shampoo on gradients with reduced variance; AdamW for what is no matrix",
  hyper = {
    lr = { 3e-3, min = 0 }, beta1 = { 0.95, min = 0, below = 1 },
    beta2 = { 0.99, min = 0, below = 1 },
    eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 }, gamma = { 0.025, min = 0 },
    lr_1d = { 3e-3, min = 0 }, beta1_1d = { 0.9, min = 0, below = 1 },
    beta2_1d = { 0.95, min = 0, below = 1 },
    weight_decay_1d = { 0.1, min = 0 },
  },
  options = { mars_type = { "adamw", "lion", "shampoo" }, optimize_1d = false, amsgrad = false },
  products = "f16",
  state = { m = zeros, v = zeros, last_grad = zeros, vmax = zeros },
  step = function()
    if optimize_1d then
      mars(false)
    else
      m = lerp(m, g, 1 - beta1_1d)
      v = beta2_1d * v + (1 - beta2_1d) * g * g
      local u = (1 / (1 - beta1_1d ^ t)) * m
        / ((1 / sqrt(1 - beta2_1d ^ t)) * sqrt(largest()) + eps)
      p = descend(p, u, lr_1d, weight_decay_1d)
    end
  end,
  matrix = function() mars(true) end,
}
