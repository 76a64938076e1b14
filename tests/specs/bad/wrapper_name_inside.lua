-- expect: 6: 'ema' is not declared
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - ema * g
  end,
}
