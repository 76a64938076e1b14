-- expect: 7: the rule has over 20000 values: is a loop unrolled too far?
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local x = g
    for i = 1, 1e6 do x = x * g + i end
    p = p - x
  end,
}
