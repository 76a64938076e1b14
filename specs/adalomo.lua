-- As AdaLomo of the authors' package lomo-optim (OpenLMLab/LOMO 45d4bac), for steps inside the backward pass
-- (release_grads=True in Python): Adafactor's second moments, at a rate relative to the RMS of the weights.
-- f32 range: as Adafactor, |g| under 1.8e19 / sqrt(length of a row or column).
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
  doc   = "Row and column means of squared gradients, and a rate relative to the size of the weights",
  view  = "last",
  hyper = {
    lr = { 1e-3, min = 0 }, eps1 = { 1e-30, min = 0 }, eps2 = { 1e-3, min = 0 }, clip_threshold = { 1, above = 0 },
    decay_rate = { -0.8, max = 0 }, weight_decay = { 0, min = 0 },
  },
  state = { v = zeros, r = zeros "row", c = zeros "col" },
  step = function()
    v = lerp(v, g * g + eps1, t ^ decay_rate)
    move(g * rsqrt(v))
  end,
  matrix = function()
    local w, sq = t ^ decay_rate, g * g + eps1
    r = lerp(r, rowmean(sq), w)
    c = lerp(c, colmean(sq), w)
    move(g * rsqrt(r / slice.mean(r)) * rsqrt(c))
  end,
}
