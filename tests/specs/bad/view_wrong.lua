-- expect: 4: 'view' is "first", "last" or "plain", not "middle"
return optimizer {
  name  = "bad",
  view = "middle",
  step = function()
    p = p - g
  end,
}
