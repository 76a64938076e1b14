-- expect: 4: 'd' has one value per row and cannot take the result of sum on line 4 (a value per block_row): that belongs to a block of the matrix
return optimizer {
  name = "x", hyper = { lr = 0.1 }, state = { d = zeros "row" }, block = 8, step = function()
    d = diag(gram(g))
    p = p - lr * d * g end }
