-- expect: 6: put(X, i, V): V has one value for each of the rows or columns that topk chose
-- expect: 7: put: the indices are of rows: leave out "cols"
return optimizer {
  name = "bad", rank = 2, step = function() p = p - g end,
  matrix = function() local i = topk(rowsum(g))
    p = put(p, i, gram(g))
    p = put(g, i, take(g, i), "cols")
  end,
}
