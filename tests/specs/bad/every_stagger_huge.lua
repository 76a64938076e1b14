-- expect: 6: every: with stagger = true the period is at most 1048576
return optimizer {
  name  = "bad",
  state = { m = zeros },
  step = function()
    every(2000000, { stagger = true }, function() m = m + g end)
    p = p - m
  end,
}
