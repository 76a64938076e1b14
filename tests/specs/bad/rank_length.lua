-- expect: 4: 'rank' must be a whole number from 1 to 1048576, or the name of an option
return optimizer {
  name  = "bad",
  rank  = 0,
  step = function() p = p - g end,
}
