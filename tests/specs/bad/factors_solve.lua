-- expect: 13: eigh takes a square value
-- expect: 14: the axis 'rank' has no length
-- expect: 15: eigh(A) gives values and vectors
-- expect: 16: solve: rows x rows and the transpose of 'g' (a value per elem) do not fit: in T X = B it is B's rows that count
-- expect: 17: solve: rows x rows and 'g' (a value per elem) do not fit: in X T = B it is B's columns that count
-- expect: 18: sort takes values along one axis, by row, column or direction; it got 'g' (a value per elem)
-- expect: 19: take: the result of sum on line 19 (a value per row) is not one index for each of the columns of 'g' (a value per elem)
-- expect: 20: take(X, order) takes rows of X, and take(X, order, "cols") columns
return optimizer {
  name  = "bad", hyper = { n = 5 },
  step = function() p = p - g end,
  matrix = function()
    local w, V = eigh(g)            p = p - mm(V, g)
    local u, U = eigh(gram(g), "rank")  p = p - mm(U, g)
    local z, Z = eigh(gram(g), 3)   p = p - mm(Z, g)
    p = p - solve(gram(g), g.T)
    p = p - solve(gram(g), g, { right = true })
    p = p - take(g, sort(g))
    p = p - take(g, rowsum(g), "cols")
    p = p - take(g, rowsum(g), 1)
  end,
}
