-- expect: 6: mm: rows x 1 times rows x cols does not fit: 'u' (a value per row, made by sum on line 5) and 'g' (a value per elem); values by row or column are one column, and one row with .T
return optimizer {
  name  = "bad",
  matrix = function()
    local u = rowsum(g)
    p = p - mm(u, g)
  end,
  step = function() p = p - g end,
}
