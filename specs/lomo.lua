-- As LOMO of the authors' package lomo-optim (OpenLMLab/LOMO 45d4bac): SGD without momentum. What
-- saves memory is stepping inside the backward pass: release_grads=True in Python. clip_grad_norm
-- and clip_grad_value: 0 means none. The norm is that of all gradients, before they are clipped by
-- value. It needs all of them at once.
return optimizer {
  name  = "lomo",
  cite  = "Lv et al. 2023, arXiv:2306.09782",
  use   = "To fine-tune all weights with no optimizer state, inside the backward pass",
  family = "small state", follows = "OpenLMLab/LOMO 45d4bac",
  doc   = "Plain SGD with clipping, for steps inside the backward pass",
  hyper = { lr = { 1e-3, min = 0 }, weight_decay = { 0, min = 0 } },
  options = { clip_grad_norm = 0.0, clip_grad_value = 0.0 },
  step = function()
    local x = g
    if clip_grad_value > 0 then x = clamp(x, -clip_grad_value, clip_grad_value) end
    if clip_grad_norm > 0 then x = min(1, clip_grad_norm / (global.norm(g) + 1e-6)) * x end
    p = descend(shrink(p, lr * weight_decay), x, lr)
  end,
}
