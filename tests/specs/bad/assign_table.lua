-- expect: 6: p: argument
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = { g }
  end,
}
