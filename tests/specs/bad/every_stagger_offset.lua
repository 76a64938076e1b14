-- expect: 7: every: with stagger = true each tensor has an offset of its own, and none is given
return optimizer {
  name  = "bad",
  state = { m = zeros },
  step = function()
    m = m + g
    every(10, { stagger = true, offset = 0 }, function() p = p - m end)
  end,
}
