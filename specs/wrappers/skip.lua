-- Put it outermost, as in clip(1),skip: it looks at the gradient as it comes, in the pass that clip makes over it anyway.
-- Only sam goes around it, as in skip,sam: it ends a step that is left out where the step started.
-- A step that is left out counts in each tensor's skip.skipped and not in the rule's t. optc_get_t counts all steps: less
-- skip.skipped it is the rule's t. `every` goes by all steps.
return wrapper {
  name   = "skip",
  cite   = "Micikevicius et al. 2018, arXiv:1710.03740",
  doc    = "Leaves parameters, states and the rule's t as they are at a step whose gradients hold a NaN or an infinity",
  state  = { skipped = zeros "tensor" },
  values = { nonfinite = "group" },
  step   = function()
    local ok = isfinite(max(0, global.max(abs(g))))          -- of no gradients at all the largest is -inf
    nonfinite = where(ok, 0, 1)
    skipped = skipped + nonfinite
    when(ok, function() inner { t = t - skipped } end)
  end,
}
