-- expect: 6: k must be odd
return optimizer {
  name  = "bad",
  options = { k = 2 },
  step = function()
    assert(k % 2 == 1, "k must be odd")
    p = p - k * g
  end,
}
