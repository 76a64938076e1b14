-- expect: 8: cannot test 'g'
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    repeat
      p = p - g
    until g
  end,
}
