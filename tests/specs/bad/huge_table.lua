-- expect: 0: too much memory
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local list = {}
    for i = 1, 1e9 do list[i] = i end
  end,
}
