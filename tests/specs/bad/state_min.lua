-- expect: 4: the only least value that a state can declare is 0: zeros { min = 0 }
return optimizer {
  name  = "bad",
  state = { m = zeros { min = 1 } },
  step = function()
    m = g
    p = p - m
  end,
}
