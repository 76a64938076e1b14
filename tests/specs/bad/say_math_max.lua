-- expect: 6: write max(…)
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = math.max(p, g)
    p = p - lr * g
  end,
}
