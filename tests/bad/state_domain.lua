-- expect: 4: a state's domain is "group", "tensor", "slice", "row", "col" or "elem", not "rows"
return optimizer {
  name  = "bad",
  state = { m = zeros "rows" },
  step = function()
    m = g
    p = p - m
  end,
}
