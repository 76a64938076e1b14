-- expect: 4: must make the same global reductions in the same order
return optimizer {
  name  = "bad",
  matrix = function() p = p - global.max(g) * g end,
  step = function()
    p = p - global.sum(g) * g
  end,
}
