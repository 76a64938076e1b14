-- expect: 4: this one has no partner in 'step'
return optimizer {
  name  = "bad",
  matrix = function() p = p - global.norm(g) * g end,
  step = function()
    p = p - g
  end,
}
