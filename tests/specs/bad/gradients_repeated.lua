-- expect: 3: gradients: 'step' is listed twice
return optimizer { name = "bad", step = function() p = p - g end,
  gradients = { "step", "step" },
}
