-- expect: 1: 'to-eval' cannot name an entry
return optimizer {
  name  = "bad",
  ["to-eval"] = function() p = p + g end,
  step = function()
    p = p - g
  end,
}
