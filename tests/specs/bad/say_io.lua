-- expect: 6: 'io' is not declared: a spec has no files
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    io.write("x")
    p = p - lr * g
  end,
}
