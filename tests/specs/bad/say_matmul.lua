-- expect: 6: 'matmul' is not declared: a product of matrices is mm(a, b); '*' is elementwise
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - matmul(g, g)
    p = p - lr * g
  end,
}
