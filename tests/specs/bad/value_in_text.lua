-- expect: 6: a symbolic value cannot become text
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local s = "lr is " .. lr
    p = p - g
  end,
}
