-- expect: 6: 'print' is not declared: a spec cannot print: list what you want to see under 'values'
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    print(p)
    p = p - lr * g
  end,
}
