-- Dion2 whose selected rows are brought to equal size by a second moment each, as NorMuon does;
-- always selects rows. Named NorDion2 first. As microsoft/dion 0a059a4 with flatten = true, on one
-- process; mu and fraction are its names. Tensors of three and more dimensions are dim 0 x the
-- rest, as with flatten = true. Their default is false: matrices of the last two dimensions, each
-- with its own selection.
-- products: f16 as in Muon; a rounding error in the length of a row is divided out again.
return optimizer {
  name  = "dion3",
  cite  = "Ahn et al. 2025, arXiv:2512.16928; Li et al. 2025, arXiv:2510.05491; " ..
          "github.com/microsoft/dion",
  use   = "In place of NorMuon when its products dominate the step",
  family = "muon", follows = "microsoft/dion 0a059a4",
  doc   = "NorMuon of the rows with the largest momentum, a share of them at each step; AdamW " ..
          "for what is no matrix",
  hyper = {
    lr = { 0.01, min = 0 }, mu = { 0.95, min = 0 }, beta2 = { 0.95, min = 0, below = 1 },
    weight_decay = { 0.01, min = 0 }, eps = { 1e-8, min = 0 },
  },
  options = {
    fraction = 0.25, scale = { "spectral", "rms", "none" },
    coefficients = { "polar_express_5", "jordan", "quintic", "polar_express", "cans" },
  },
  rank  = { share = "fraction", of = "rows" },
  products = "f16",
  state = { m = zeros, v = zeros "row" },
  step  = rule "adamw",
  matrix = function()
    local size, u = 1, m + g
    if scale == "spectral" then size = sqrt(nrows / ncols) end
    if scale == "rms" then size = 0.2 * sqrt(max(nrows, ncols)) end
    local i = topk(rowsum(abs(u)))
    local o = polar(take(u, i), { coefficients = coefficients })
    local r = lerp(take(v, i), rowmean(o * o), 1 - beta2)
    local d = o / (sqrt(r) + eps)
    m, v = put(u, i, mu * take(u, i)), put(v, i, r)
    p = descend(shrink(p, lr * weight_decay), put(0, i, d),
                lr * size * slice.norm(o) / max(slice.norm(d), eps))
  end,
}
