-- expect: 7: 'seen' is listed in 'values', which are not kept between steps: assign it before reading it, or make it a state
return optimizer {
  name   = "bad",
  hyper  = { lr = 0.1 },
  values = { seen = "group" },
  step = function()
    p = p - lr * seen * g
    seen = 1
  end,
}
