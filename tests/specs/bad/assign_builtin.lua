-- expect: 6: 'sqrt' is not declared
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    sqrt = 2
    p = p - g
  end,
}
