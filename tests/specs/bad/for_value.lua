-- expect: 6: 'for' limit
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    for i = 1, t do p = p - g end
  end,
}
