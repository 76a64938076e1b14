-- expect: 8: gradients: the spec has no entry 'pertub'
-- rule: sgd
-- with: gradients_entry
return wrapper {
  name = "gradients_entry",
  state = { old = copy(p) },
  perturb = function() old = p end,
  gradients = { "pertub", "step" },
  step = function() inner() p = p + 0 * old end,
}
