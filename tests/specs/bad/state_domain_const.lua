-- expect: 4: a state's domain is
return optimizer {
  name  = "bad",
  state = { m = zeros "const" },
  step = function()
    m = 1
    p = p - m
  end,
}
