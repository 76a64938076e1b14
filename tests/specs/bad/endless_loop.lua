-- expect: 6: runs too long
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    while true do end
  end,
}
