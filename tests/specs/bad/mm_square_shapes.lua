-- expect: 7: mm: rows x rows times cols x cols does not fit: 'L' (a value per rows) and 'R' (a value per cols)
return optimizer {
  name  = "bad",
  state = { L = zeros "rows", R = zeros "cols" },
  step = function() p = p - g end,
  matrix = function()
    L, R = mm(L, R), gram(g.T)
    p = p - g
  end,
}
