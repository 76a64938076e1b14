-- As the authors' code (OptimAI-Lab/Minimalist_LLM_Pretraining f5bd4e7). What they call columns is
-- the input axis: elements of a row here, and of a column for tensors tagged "embed". Tensors
-- tagged "head" have momentum.
return optimizer {
  name  = "scale",
  cite  = "Glentis et al. 2025, arXiv:2506.16659",
  use   = "To pre-train language models with almost no state; only the last layer has momentum",
  family = "small state", follows = "OptimAI-Lab/Minimalist_LLM_Pretraining f5bd4e7",
  doc   = "Gradients over their RMS along the input axis, with momentum in the last layer only; " ..
          "AdamW for the rest",
  hyper = { lr = { 1e-4, min = 0 }, momentum = { 0.9, min = 0, below = 1 },
            weight_decay = { 0, min = 0 } },
  state = { m = zeros },
  step  = rule "adamw",
  matrix = function()
    local x, size = g
    if tagged "head" then
      m = lerp(m, g, 1 - momentum)
      x = m
    end
    if tagged "embed" then size = colrms(x) else size = rowrms(x) end
    p = descend(shrink(p, lr * weight_decay), x / max(size, 1e-8), lr)
  end,
}
