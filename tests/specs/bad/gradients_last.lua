-- expect: 3: gradients: the last entry must be "step", at every step
return optimizer { name = "bad", perturb = function() p = p + g end, step = function() p = p - g end,
  gradients = { "step", "perturb" },
}
