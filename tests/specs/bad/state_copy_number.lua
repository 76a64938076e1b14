-- expect: 4: copy takes p
return optimizer {
  name  = "bad",
  state = { m = copy(1) },
  step = function()
    m = g
    p = p - m
  end,
}
