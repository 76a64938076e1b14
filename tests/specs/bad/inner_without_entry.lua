-- expect: 7: the rule inside has no entry 'perturb'
-- rule: sgd
-- with: inner_without_entry
return wrapper {
  name  = "bad",
  perturb = function()
    inner()
  end,
  step = function()
    inner()
  end,
}
