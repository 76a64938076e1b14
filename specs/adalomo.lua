-- As AdaLomo of the authors' package lomo-optim (OpenLMLab/LOMO 45d4bac), for steps inside the
-- backward pass (release_grads=True in Python): Adafactor's second moments, at a rate relative to
-- the RMS of the weights. clip_grad_norm and clip_grad_value: 0 means none, as in lomo.
-- f32 range: as Adafactor, |g| under 1.8e19 / sqrt(length of a row or column).
local function clipped()
  local x = g
  if clip_grad_value > 0 then x = clamp(x, -clip_grad_value, clip_grad_value) end
  if clip_grad_norm > 0 then x = min(1, clip_grad_norm / (global.norm(g) + 1e-6)) * x end
  return x
end

local function move(u)
  local rate = lr * max(eps2, rms(p))
  p = shrink(p, rate * weight_decay)
  p = descend(p, u, rate / max(1, rms(u) / clip_threshold))
end

return optimizer {
  name  = "adalomo",
  cite  = "Lv et al. 2023, arXiv:2310.10195",
  use   = "To fine-tune all weights with almost no optimizer memory, inside the backward pass",
  family = "small state", follows = "OpenLMLab/LOMO 45d4bac",
  doc   = "Row and column means of squared gradients, and a rate relative to the size of the " ..
          "weights",
  view  = "last",
  hyper = {
    lr = { 1e-3, min = 0 }, eps1 = { 1e-30, min = 0 }, eps2 = { 1e-3, min = 0 },
    clip_threshold = { 1, above = 0 },
    decay_rate = { -0.8, max = 0 }, weight_decay = { 0, min = 0 },
  },
  options = { clip_grad_norm = 0.0, clip_grad_value = 0.0 },
  state = { v = zeros, r = zeros "row", c = zeros "col" },
  step = function()
    local x = clipped()
    v = lerp(v, x * x + eps1, t ^ decay_rate)
    move(x * rsqrt(v))
  end,
  matrix = function()
    local x = clipped()
    local w, sq = t ^ decay_rate, x * x + eps1
    r = lerp(r, rowmean(sq), w)
    c = lerp(c, colmean(sq), w)
    move(x * rsqrt(r / slice.mean(r)) * rsqrt(c))
  end,
}
