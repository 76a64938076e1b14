-- expect: 4: a state's domain is "group", "tensor", "slice", "row", "col", "rows", "cols" or "elem", not "lines"
return optimizer {
  name  = "bad",
  state = { m = zeros "lines" },
  step = function()
    m = g
    p = p - m
  end,
}
