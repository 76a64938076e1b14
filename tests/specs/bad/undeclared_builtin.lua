-- expect: 7: 'sqr' is not declared
-- expect: 7: 'sqrt'
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * g / sqr(g * g)
  end,
}
