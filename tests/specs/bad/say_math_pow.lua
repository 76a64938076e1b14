-- expect: 6: attempt to call a nil value (field 'pow'); write pow(…)
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - math.pow(g, 2)
    p = p - lr * g
  end,
}
