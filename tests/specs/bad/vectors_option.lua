-- expect: 5: 'vectors' must be true, or the name of an option that is true or false
return optimizer {
  name  = "bad",
  options = { side = 4 },
  vectors = "side",
  step = function() p = p - g end,
  matrix = function() p = p - g end,
}
