-- expect: 6: 'p' cannot hold a constant truth value
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = true
  end,
}
