-- Selects along the shorter side: rows of wide matrices, columns of tall ones. The rest of the
-- momentum stays for later steps. As microsoft/dion 0a059a4 with flatten = true, on one process;
-- ef_decay and fraction are its names. Tensors of three and more dimensions are dim 0 x the rest,
-- as with flatten = true. Their default is false: matrices of the last two dimensions, each with
-- its own selection.
-- products: f16 as in Muon; singular values only have to come near 1.
return optimizer {
  name  = "dion2",
  cite  = "Ahn et al. 2025, arXiv:2512.16928",
  use   = "In place of Muon when its products dominate the step; a share of the rows takes part",
  family = "muon", follows = "microsoft/dion 0a059a4",
  doc   = "Muon of the rows or columns with the largest momentum, a share of them at each step; " ..
          "AdamW for what is no matrix",
  hyper = { lr = { 0.01, min = 0 }, ef_decay = { 0.95, min = 0 },
            weight_decay = { 0.01, min = 0 } },
  options = {
    fraction = 0.25, scale = { "spectral", "rms", "none" },
    coefficients = { "polar_express_5", "jordan", "quintic", "polar_express", "cans" },
  },
  rank  = { share = "fraction", of = "side" },
  products = "f16",
  state = { m = zeros },
  step  = rule "adamw",
  matrix = function()
    local size, u = 1, m + g
    if scale == "spectral" then size = sqrt(nrows / ncols) end
    if scale == "rms" then size = 0.2 * sqrt(max(nrows, ncols)) end
    local side, sums = "cols", colsum
    if nrows <= ncols then side, sums = "rows", rowsum end
    local i = topk(sums(abs(u)))
    local o = polar(take(u, i, side), { coefficients = coefficients })
    m = put(u, i, ef_decay * take(u, i, side), side)
    p = descend(shrink(p, lr * weight_decay), put(0, i, o, side), lr * size)
  end,
}
