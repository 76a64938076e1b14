-- expect: 6: 'gradients' is given here and in another spec of the composition
-- rule: sgd
-- with: sam,gradients_twice
return wrapper {
  name = "gradients_twice", other = function() p = p + g end, step = function() inner() end,
  gradients = { "other", "step" },
}
