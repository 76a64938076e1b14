-- expect: 7: over 200 random draws
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local x = g
    for i = 1, 1000 do x = x + random() end
    p = p - x
  end,
}
