-- expect: 4: 'rank' is a whole number, or the name of an option that is one: 'k' is none
return optimizer {
  name  = "bad", options = { k = true },
  rank  = "k",
  step = function() p = p - g end,
}
