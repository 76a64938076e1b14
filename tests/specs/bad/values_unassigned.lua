-- expect: 5: value 'seen' is never assigned
return optimizer {
  name   = "bad",
  hyper  = { lr = 0.1 },
  values = { seen = "group" },
  step = function()
    p = p - lr * g
  end,
}
