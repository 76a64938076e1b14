-- expect: 4: input 'loss': the name is declared twice
return optimizer {
  name  = "bad",
  hyper  = { loss = 1 },
  inputs = { loss = "group" },
  step = function()
    p = p - loss * g
  end,
}
