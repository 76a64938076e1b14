-- expect: 0: too much memory
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local s = "x"
    while true do s = s .. s end
  end,
}
