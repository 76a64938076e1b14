-- expect: 6: 'matmul' is not declared: matrix products are not in the language yet
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - matmul(g, g)
    p = p - lr * g
  end,
}
