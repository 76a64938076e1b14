-- expect: 3: 'gradients' lists the entries of a step in order, each after a fresh gradient
return optimizer { name = "bad", perturb = function() p = p + g end, step = function() p = p - g end,
  gradients = { { "perturb", each = 3 }, "step" },
}
