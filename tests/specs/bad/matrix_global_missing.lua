-- expect: 7: all variants of a rule must make the same global reductions in the same order: this one has no partner in 'matrix'
-- expect: 7: has no partner in 'matrix'
return optimizer {
  name  = "bad",
  matrix = function() p = p - g end,
  step = function()
    p = p - global.norm(g) * g
  end,
}
