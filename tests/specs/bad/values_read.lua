-- expect: 7: 'seen' is a value for the reader and not kept between steps: assign it first, or make it a state
return optimizer {
  name   = "bad",
  hyper  = { lr = 0.1 },
  values = { seen = "group" },
  step = function()
    p = p - lr * seen * g
    seen = 1
  end,
}
