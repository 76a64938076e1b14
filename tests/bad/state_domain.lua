-- expect: 4: a state's domain is "elem", "row", "col", "slice", "tensor" or "group", not "rows"
return optimizer {
  name  = "bad",
  state = { m = zeros "rows" },
  step = function()
    m = g
    p = p - m
  end,
}
