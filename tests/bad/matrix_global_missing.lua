-- expect: 7: 'matrix' and 'step' must make the same global reductions
-- expect: 7: has no partner in 'matrix'
return optimizer {
  name  = "bad",
  matrix = function() p = p - g end,
  step = function()
    p = p - global.norm(g) * g
  end,
}
