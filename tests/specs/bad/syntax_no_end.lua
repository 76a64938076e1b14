-- expect: 7: unexpected symbol near '}'; is an 'end' missing? 'function' on line 5 has none
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * g
}
