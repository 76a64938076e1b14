-- expect: 6: polar takes a matrix; it got the result of sum on line 6 (a value per row)
return optimizer {
  name  = "bad",
  step = function() p = p - g end,
  matrix = function()
    p = p - polar(rowsum(g))
  end,
}
