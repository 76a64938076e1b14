-- expect: 6: isnt: argument 1 is
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = where(isnt(g), p, g)
  end,
}
