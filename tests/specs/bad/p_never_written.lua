-- expect: 0: no entry writes p
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  state = { m = zeros },
  step = function()
    m = m + lr * g
    p = p
  end,
}
