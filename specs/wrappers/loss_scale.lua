-- The caller multiplies the loss by loss_scale.scale before it computes gradients, and reads the
-- scale again after each step. growth = 1 and backoff = 1 keep it fixed. Put it outermost, as skip.
-- A skipped step counts in each tensor's loss_scale.skipped and not in the rule's t.
return wrapper {
  name  = "loss_scale",
  cite  = "Micikevicius et al. 2018, arXiv:1710.03740",
  use   = "When gradients are in f16 and small values would become 0",
  family = "precision", follows = "torch.amp.GradScaler 2.13.0",
  doc   = "Divides gradients by a loss scale that grows slowly, and halves it instead of " ..
          "stepping if one is not finite",
  args  = { "first" },
  hyper = {
    first = { 65536, above = 0 }, growth = { 2, min = 1 }, backoff = { 0.5, above = 0, max = 1 },
    interval = { 2000, min = 1 },
  },
  state = { scale = fill(first, "group"), good = zeros "group", skipped = zeros "tensor" },
  step  = function()
    g = g / scale
    -- without any gradient the maximum is -inf
    local ok = isfinite(max(0, global.max(abs(g))))
    local grow = ge(good + 1, interval)
    scale = where(ok, where(grow, min(scale * growth, 2^127), scale), scale * backoff)
    good = where(both(ok, isnt(grow)), good + 1, 0)
    skipped = skipped + where(ok, 0, 1)
    when(ok, function() inner { t = t - skipped } end)
  end,
}
