-- As SinkGD of axolotl 067b021 without its spectral options. Rows are brought to norm
-- sqrt(columns), then columns to sqrt(rows), sinkhorn_iters times. lr_scale multiplies lr for
-- matrices, also in weight decay. AdamW steps the rest: give it embeddings and heads too (tag
-- "embed" or "head").
-- f32 range: factors end at 1e30. A row or column of norm under sqrt(length) * 1e-30 is not brought
-- to full norm.
return optimizer {
  name  = "sinkgd",
  cite  = "Scetbon et al. 2025, arXiv:2502.06742",
  use   = "To pre-train language models with no state for matrices",
  family = "small state", follows = "axolotl-ai-cloud/axolotl 067b021",
  doc   = "Gradients whose rows and columns are brought to equal norms; no state. AdamW for " ..
          "what is no matrix",
  view  = "last",
  hyper = {
    lr = { 1e-3, min = 0 }, lr_scale = { 0.05, min = 0 }, eps = { 1e-8, above = 0 },
    weight_decay = { 0, min = 0 },
  },
  options = { sinkhorn_iters = 5 },
  step = rule "adamw",
  matrix = function()
    if tagged "embed" or tagged "head" then return step() end
    -- products of the factors of all iterations: x is g * row * col
    local row, col, x = 1, 1, g
    for _ = 1, sinkhorn_iters do
      row = min(row * (sqrt(ncols) / max(rownorm(x), eps)), 1e30)
      x = g * row * col
      col = min(col * (sqrt(nrows) / max(colnorm(x), eps)), 1e30)
      x = g * row * col
    end
    p = descend(shrink(p, lr * lr_scale * weight_decay), x, lr * lr_scale)
  end,
}
