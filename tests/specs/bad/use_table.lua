-- expect: 4: 'use' must be a string
return optimizer {
  name  = "bad",
  use = { "for matrices" },
  step = function()
    p = p - g
  end,
}
