-- expect: 4: gradients: 'every' must be a whole number from 1 to 1000000000, or the name of an option that is one
return optimizer { name = "bad", perturb = function() p = p + g end, step = function() p = p - g end,
  options = { k = true },
  gradients = { { "perturb", every = "k" }, "step" },
}
