-- expect: 4: when takes a truth value and a function
return optimizer {
  name  = "bad",
  step = function() when(lt(sum(g), 1), p - g) end,
}
