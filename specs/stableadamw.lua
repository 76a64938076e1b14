-- k counts the group's steps, as the authors do, also for a tensor that joins late.
-- As pytorch_optimizer's StableAdamW and optimi's: the betas are debiased instead of the moments,
-- and the update clipping of Adafactor divides lr by the RMS of g / sqrt(v) where that exceeds 1.
-- Weight decay takes the clipped lr.
-- f32 range: v is infinite from |g| = 1.8e19 on: the element stands still from then on.
return optimizer {
  name  = "stableadamw",
  cite  = "Wortsman et al. 2023, arXiv:2304.13013",
  use   = "In place of AdamW with gradient clipping when the loss spikes",
  family = "adam", follows = "pytorch_optimizer.StableAdamW 4.1.0",
  doc   = "AdamW with Adafactor's update clipping",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.99, min = 0, below = 1 },
    weight_decay = { 1e-2, min = 0 }, eps = { 1e-8, above = 0 },
  },
  state = { m = zeros, v = zeros { min = 0 }, k = zeros "group" },
  step = function()
    k = k + 1
    local share1, share2 = (1 - beta1) / (1 - beta1 ^ k), (1 - beta2) / (1 - beta2 ^ k)
    m = lerp(m, g, share1)
    v = (1 - share2) * v + share2 * g * g
    local rate = lr / max(rms(g / max(sqrt(v), eps)), 1)
    p = shrink(p, rate * weight_decay)
    p = descend(p, { m, over = sqrt(v) + eps }, rate)
  end,
}
