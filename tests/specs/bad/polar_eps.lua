-- expect: 7: polar: eps is a number of at least 0, known when the rule is compiled, not -1
-- expect: 8: polar: eps is a number of at least 0, known when the rule is compiled, not a value
return optimizer {
  name  = "bad", hyper = { n = 5 },
  step = function() p = p - g end,
  matrix = function()
    p = p - polar(g, { eps = -1 })
    p = p - polar(g, { eps = n })
  end,
}
