-- expect: 7: every(k, { … }, f) knows 'offset', 'first' and 'stagger'
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  state = { m = zeros },
  step = function()
    every(3, { of = 1 }, function() m = g end)
    p = p - lr * m
  end,
}
