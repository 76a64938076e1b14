-- expect: 4: state 'm': a copy of p has one value per element
return optimizer {
  name  = "bad",
  state = { m = copy(p, "row") },
  step = function()
    m = rowsum(g)
    p = p - m
  end,
}
