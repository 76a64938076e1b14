-- expect: 6: a product of matrices is mm(a, b)
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - g @ g
    p = p - lr * g
  end,
}
