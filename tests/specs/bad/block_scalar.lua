-- expect: 7: mul: the result of sum on line 7 (a value per block) and 'g' (a value per elem) do not fit: the first belongs to a block of the matrix (block = 64), the second to the whole matrix
return optimizer {
  name = "x", hyper = { lr = 0.1 }, state = { L = zeros "rows" }, block = 64,
  step = function() p = p - lr * g end,
  matrix = function()
    L = gram(g)
    p = p - lr * (trace(L) * g)
  end }
