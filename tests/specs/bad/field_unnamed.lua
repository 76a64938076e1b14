-- expect: 1: holds an entry without a name
return optimizer {
  "bad",
  step = function() p = p - g end,
}
