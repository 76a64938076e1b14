-- As ethansmith2000/SWANOptimizer without momentum; the authors have published no code. Rows are
-- standardised, then the matrix is replaced by its orthogonal factor (ns_steps of the plain
-- Newton-Schulz iteration, whose coefficients are 3 beta and -beta), and brought back to the norm
-- that it had before.
-- products: f16, as in muon.
return optimizer {
  name  = "swan",
  cite  = "Ma et al. 2024, arXiv:2412.13148",
  use   = "To pre-train language models with no state for matrices, at the cost of products",
  family = "small state", follows = "ethansmith2000/SWANOptimizer 1184360",
  doc   = "SGD with rows of gradients standardised and the matrix whitened; no state. AdamW for " ..
          "what is no matrix",
  hyper = { lr = { 0.02, min = 0 }, weight_decay = { 0, min = 0 } },
  options = { ns_steps = 6, beta = 0.5, post_norm = true },
  products = "f16",
  step = rule "adamw",
  matrix = function()
    local x = g - rowmean(g)
    x = x / sqrt(rowmean(x * x) + 1e-8)
    local u, size = polar(x, { steps = ns_steps, coefficients = { { 3 * beta, -beta, 0 } } }), 1
    if post_norm then size = slice.norm(x) / max(slice.norm(u), 1e-30) end
    p = descend(shrink(p, lr * weight_decay), u, lr * size)
  end,
}
