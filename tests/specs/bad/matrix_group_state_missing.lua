-- expect: 4: state 'n' is one per group, so 'step' and 'matrix'
return optimizer {
  name  = "bad",
  state = { n = zeros "group" },
  matrix = function() p = p - n * g end,
  step = function()
    n = n + 1
    p = p - n * g
  end,
}
