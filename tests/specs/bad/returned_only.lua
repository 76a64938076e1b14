-- expect: 6: no entry assigns p: what an entry returns is not used; write p = … in place of return …
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    return p - lr * g
  end,
}
