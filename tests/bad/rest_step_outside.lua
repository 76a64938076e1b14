-- expect: 5: step() is for use inside 'matrix': it steps a matrix as other tensors are stepped
return optimizer {
  name   = "bad",
  step   = function()
    step()
    p = p - g
  end,
  matrix = function() p = p - 2 * g end,
}
