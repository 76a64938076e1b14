-- expect: 6: 'r' has one value per row and cannot take the result of sum on line 6 (a value per row, transposed): transpose it with .T
return optimizer {
  name  = "bad",
  state = { L = zeros "rows", r = zeros "row" },
  matrix = function()
    L, r = gram(g), colsum(L)
    p = p - g
  end,
  step = function() p = p - g end,
}
