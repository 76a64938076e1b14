-- expect: 7: every: stagger = true gives each tensor its own offset, so offset = … is not allowed with it
return optimizer {
  name  = "bad",
  state = { m = zeros },
  step = function()
    m = m + g
    every(10, { stagger = true, offset = 0 }, function() p = p - m end)
  end,
}
