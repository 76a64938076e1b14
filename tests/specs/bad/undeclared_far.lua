-- expect: 6: 'zqxwv' is not declared
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - zqxwv * g
  end,
}
