-- expect: 4: 'view' is "first" or "last", not "middle"
return optimizer {
  name  = "bad",
  view = "middle",
  step = function()
    p = p - g
  end,
}
