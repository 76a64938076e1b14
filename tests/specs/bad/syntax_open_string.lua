-- expect: 3: unfinished string
return optimizer {
  name  = "bad,
  step = function() p = p - g end,
}
