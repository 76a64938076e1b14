-- expect: 10: trace takes a square value, one over rows and rows, cols and cols or rank and rank; it got 'g' (a value per elem)
-- expect: 11: diag takes a square value
-- expect: 12: triu takes a square value
-- expect: 13: outer takes two values by row or column; argument 2 is 'g' (a value per elem)
-- expect: 14: eye "rows" is the unit matrix of rows x rows, and eye(x, "rows") has x on its diagonal; the other axes are "cols" and "rank", not elem
-- expect: 15: eye: the result of sum on line 15 (a value per col) does not vary along rows x rows
return optimizer {
  name  = "bad",
  matrix = function()
    local a = trace(g)
    local b = diag(g)
    local c = triu(g)
    local d = outer(rowsum(g), g)
    local e = eye(1, "elem")
    local f = eye(colsum(g), "rows")
    p = p - g
  end,
  step = function() p = p - g end,
}
