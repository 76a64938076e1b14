-- expect: 4: 'rank' must be a whole number, or the name of an option that is one: 'k' is not
return optimizer {
  name  = "bad", options = { k = true },
  rank  = "k",
  step = function() p = p - g end,
}
