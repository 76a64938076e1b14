-- expect: 6: where: argument 1 is 'g' (a value per elem); it must be a truth value
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - where(g, 1, 0)
  end,
}
