-- expect: 3: 'name' must be a string
return optimizer {
  name = 7,
  step = function() p = p - g end,
}
