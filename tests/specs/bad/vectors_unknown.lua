-- expect: 4: 'vectors' must be true, or the name of an option that is true or false
return optimizer {
  name  = "bad",
  vectors = "sides",
  step = function() p = p - g end,
  matrix = function() p = p - g end,
}
