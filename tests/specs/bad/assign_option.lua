-- expect: 6: 'k' is
return optimizer {
  name  = "bad",
  options = { k = 2 },
  step = function()
    k = 3
    p = p - k * g
  end,
}
