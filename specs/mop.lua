-- As MOP of NVIDIA's Emerging-Optimizers fd77292, which takes the polar factor from an SVD. 24
-- steps of a polynomial agree with that up to the precision of products times the momentum's
-- condition, for conditions up to 1e10. scale: nuclear_norm is the sum of singular values; the
-- others are Muon's scales.
-- products: f32, or f64 by the user's choice. The same steps in f16 would be no more exact than
-- eight.
return optimizer {
  name  = "mop",
  cite  = "NVIDIA 2025, Emerging-Optimizers; scale: Lau, Long and Su 2025, arXiv:2505.21799",
  use   = "As a reference for Muon: the polar factor is exact, at a higher cost",
  family = "muon", follows = "NVIDIA-NeMo/Emerging-Optimizers fd77292",
  doc   = "The exact polar factor of the momentum, times its nuclear norm; AdamW for what is no " ..
          "matrix",
  hyper = {
    lr = { 3e-4, min = 0 }, momentum = { 0.95, min = 0, below = 1 },
    weight_decay = { 0.01, min = 0 },
    extra_scale_factor = { 1, min = 0 },
  },
  options = { nesterov = false,
              scale = { "nuclear_norm", "spectral", "shape_scaling", "unit_rms_norm" } },
  products = "f32",
  state = { m = zeros },
  step  = rule "adamw",
  matrix = function()
    m = lerp(m, g, 1 - momentum)
    local u = m
    if nesterov then u = lerp(g, m, momentum) end
    local o = polar(u, { coefficients = "exact" })
    local size = slice.dot(u, o)
    if scale == "spectral" then size = sqrt(max(nrows, ncols)) end
    if scale == "shape_scaling" then size = sqrt(max(1, nrows / ncols)) end
    if scale == "unit_rms_norm" then size = sqrt(nrows / ncols) end
    p = descend(shrink(p, lr * weight_decay), o, lr * extra_scale_factor * size)
  end,
}
