-- expect: 9: runs too long
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local n = 0
    repeat
      n = n + 1
    until false
  end,
}
