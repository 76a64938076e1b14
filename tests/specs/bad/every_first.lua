-- expect: 7: every: first is true or false: whether step 1 is one of them too
return optimizer {
  name  = "bad",
  state = { m = zeros },
  step = function()
    m = m + g
    every(10, { first = 1 }, function() p = p - m end)
  end,
}
