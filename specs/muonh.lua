-- As MuonHyperball of NVIDIA's Emerging-Optimizers fd77292. radius = 0: the norm of each matrix at
-- its first step; they require one radius for all. Their scale of the update has no effect and is
-- left out. Weight decay is in their class too, 0.01 by default and 0 here, as in the paper.
-- coefficients: "jordan" is their "simple".
-- products: f16, as in muon.
return optimizer {
  name  = "muonh",
  cite  = "Hyperball, 2026, arXiv:2606.16899",
  use   = "In place of Muon when the norms of matrices should stay fixed and decay is not wanted",
  family = "muon", follows = "NVIDIA-NeMo/Emerging-Optimizers fd77292",
  doc   = "Muon whose matrices keep their norm and move by a share lr of it; AdamW for what is " ..
          "no matrix",
  hyper = {
    lr = { 3e-4, min = 0 }, momentum = { 0.95, min = 0, below = 1 }, weight_decay = { 0, min = 0 },
    radius = { 0, min = 0 }, eps = { 1e-15, above = 0 },
  },
  options = { nesterov = false, steps = 0,
              coefficients = { "quintic", "jordan", "polar_express", "cans", "turbo" } },
  products = "f16",
  state = { m = zeros, R = zeros "slice" },
  step  = rule "adamw",
  matrix = function()
    local function to_radius(x)
      local size = slice.norm(x)
      return where(lt(size, eps), 0, R / max(size, eps)) * x
    end
    R = where(gt(radius, 0), radius, where(eq(t, 1), slice.norm(p), R))
    p = p - lr * weight_decay * p
    m = lerp(m, g, 1 - momentum)
    local u = m
    if nesterov then u = lerp(g, m, momentum) end
    p = to_radius(p - lr * to_radius(polar(u, { steps = steps, coefficients = coefficients })))
  end,
}
