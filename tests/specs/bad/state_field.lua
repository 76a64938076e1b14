-- expect: 4: a state has the fields min and type, as in zeros { min = 0, type = "f32" }; not 'max'
return optimizer {
  name  = "bad",
  state = { m = zeros("row", { max = 1 }) },
  step = function()
    m = g
    p = p - m
  end,
}
