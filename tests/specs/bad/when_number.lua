-- expect: 4: when: argument 1 is the result of sum on line 4 (a value per tensor); it must be a truth value
return optimizer {
  name  = "bad",
  step = function() when(sum(g), function() p = p - g end) end,
}
