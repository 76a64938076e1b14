-- expect: 7: 'beta' is not declared
-- expect: 7: did you mean 'beta1'
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1, beta1 = 0.9 },
  step = function()
    p = p - lr * beta * g
  end,
}
