-- expect: 4: state 'n' is one per group, so 'step' and 'matrix' must give it the same value
return optimizer {
  name  = "bad",
  state = { n = zeros "group" },
  matrix = function() n = n + 2 p = p - n * g end,
  step = function()
    n = n + 1
    p = p - n * g
  end,
}
