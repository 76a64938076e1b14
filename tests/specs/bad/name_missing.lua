-- expect: 1: 'name' must be an identifier
return optimizer {
  step = function() p = p - g end,
}
