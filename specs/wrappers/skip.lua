-- Put skip outermost (clip(1),skip): it then tests the original gradient, in the pass that clip
-- needs anyway. Only sam belongs outside of skip (skip,sam): sam moves p back to where the skipped
-- step started. A skipped step counts in each tensor's skip.skipped and not in the rule's t.
-- optc_get_t counts all steps; minus skip.skipped it is the rule's t. `every` counts all steps.
return wrapper {
  name   = "skip",
  cite   = "Micikevicius et al. 2018, arXiv:1710.03740",
  use    = "When single steps may have NaN or infinite gradients",
  family = "precision", follows = "torch.optim.AdamW 2.13.0 without the skipped steps",
  doc    = "Leaves parameters, states and the rule's t as they are at a step whose gradients " ..
           "hold a NaN or an infinity",
  state  = { skipped = zeros "tensor" },
  values = { nonfinite = "group" },
  step   = function()
    -- without any gradient the maximum is -inf
    local ok = isfinite(max(0, global.max(abs(g))))
    nonfinite = where(ok, 0, 1)
    skipped = skipped + nonfinite
    when(ok, function() inner { t = t - skipped } end)
  end,
}
