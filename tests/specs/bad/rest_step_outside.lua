-- expect: 5: 'step' is not declared: the step's number is t; inside 'matrix', step() steps a matrix as other tensors are stepped
return optimizer {
  name   = "bad",
  step   = function()
    step()
    p = p - g
  end,
  matrix = function() p = p - 2 * g end,
}
