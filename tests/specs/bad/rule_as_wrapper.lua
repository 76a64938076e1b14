-- expect: 5: is an optimizer, not a wrapper: --with takes wrappers
-- rule: sgd
-- with: rule_as_wrapper
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - g
  end,
}
