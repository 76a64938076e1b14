-- expect: 4: 'k': the name is declared twice
return optimizer {
  name  = "bad",
  options = { k = 2 },
  hyper = { k = 0.5 },
  step = function()
    p = p - k * g
  end,
}
