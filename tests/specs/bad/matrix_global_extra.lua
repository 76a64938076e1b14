-- expect: 4: this one has no partner in 'step'; make it there too, even where its result is not used
return optimizer {
  name  = "bad",
  matrix = function() p = p - global.norm(g) * g end,
  step = function()
    p = p - g
  end,
}
