-- expect: 7: every: stagger is true or false: whether each tensor has its own of k steps
return optimizer {
  name  = "bad",
  state = { m = zeros },
  step = function()
    m = m + g
    every(10, { stagger = "yes" }, function() p = p - m end)
  end,
}
