-- expect: 5: 'Q' varies along the axis 'rank', which has no length: say rank = 8, or rank = the name of an option, at the head of the spec
-- expect: 7: the axis 'rank' has no length
return optimizer {
  name  = "bad",
  state = { Q = zeros "cols rank" },
  matrix = function()
    p = p - mm(normal "rows rank", Q.T)
  end,
  step = function() p = p - g end,
}
