-- k counts the group's steps, as the authors do, also for a tensor that joins late.
-- pytorch_optimizer starts m at initial_accumulator, too; here it starts at 0, as in Adam.
-- f32 range: v is infinite once g^2 is, from |g| = 1.8e19 on: the element stands still from then
-- on. |g| under 2.6e-23 adds 0 to v; eps outweighs sqrt(v) long before that.
return optimizer {
  name  = "yogi",
  cite  = "Zaheer et al. 2018, NeurIPS, Adaptive Methods for Nonconvex Optimization",
  use   = "In place of Adam when the second moment changes too fast, as with sparse gradients",
  family = "adam", follows = "pytorch_optimizer.Yogi 4.1.0",
  doc   = "Adam whose second moment moves by at most a share of g^2; bias-corrected, decoupled " ..
          "weight decay",
  hyper = {
    lr = { 1e-2, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    initial_accumulator = { 1e-6, min = 0 }, weight_decay = { 0, min = 0 }, eps = { 1e-3, min = 0 },
  },
  -- g^2 is subtracted only where v is larger
  state = { m = zeros, v = zeros { min = 0 }, k = zeros "group" },
  step = function()
    k = k + 1
    p = shrink(p, lr * weight_decay)
    m = lerp(m, g, 1 - beta1)
    v = v + where(eq(t, 1), initial_accumulator, 0)
    local sq = g * g
    -- not sign(v - sq): both may be infinite
    v = v + (1 - beta2) * where(lt(v, sq), sq, where(gt(v, sq), -sq, 0))
    p = descend(p, { m, over = (1 / sqrt(1 - beta2 ^ k)) * sqrt(v) + eps }, lr / (1 - beta1 ^ k))
  end,
}
