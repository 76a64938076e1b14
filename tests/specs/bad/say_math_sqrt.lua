-- expect: 6: math.sqrt works on plain numbers, when the spec is read, and argument 1 is a value of the step: write sqrt(…)
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - math.sqrt(g)
    p = p - lr * g
  end,
}
