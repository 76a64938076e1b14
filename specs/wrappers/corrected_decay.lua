-- For weights that a normalisation follows, such as those before LayerNorm: their norm settles
-- where gradients and decay balance, and would grow as the rate falls. Give other weights an
-- optimizer of their own, without the wrapper.
return wrapper {
  name  = "corrected_decay",
  cite  = "Defazio 2025, arXiv:2506.02285 (AdamC)",
  use   = "With a schedule for weights before a normalisation, when gradient norms grow at the end",
  family = "step", follows = "pytorch_optimizer.AdamC 4.1.0",
  doc   = "Weight decay in proportion to the rate's share of max_lr, so that norms do not grow " ..
          "when the rate falls",
  args  = { "max_lr" },
  hyper = { max_lr = { 1e-3, above = 0 } },      -- the largest rate of the schedule
  step  = function()
    local x, rate, amount = inner { apart = true }
    p = shrink(p, amount * (rate / max_lr))
    p = descend(p, x, rate)
  end,
}
