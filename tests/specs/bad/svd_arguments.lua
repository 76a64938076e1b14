-- expect: 6: svd takes a matrix; it got the result of sum on line 6 (a value per row)
-- expect: 7: svd(x) gives singular vectors and values, and svd(x, "rank") the first `rank` of them
return optimizer {
  name = "bad", step = function() p = p - g end,
  matrix = function()
    local U, s, V = svd(rowsum(g))  p = p - mm(U * s.T, V.T)
    local A, t, B = svd(g, 3)       p = p - mm(A * t.T, B.T)
  end,
}
