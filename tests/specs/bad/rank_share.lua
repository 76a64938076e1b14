-- expect: 4: share is a number above 0 and up to 1
return optimizer {
  name = "bad", options = { part = 2 },
  rank = { share = "part", of = "rows" },
  step = function() p = p - g end,
}
