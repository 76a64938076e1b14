-- expect: 2: runs too long
while true do end
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - g
  end,
}
