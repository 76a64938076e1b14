-- expect: 5: div: 'd' (a value per block_row, made by sum on line 4) and the result of mul on line 5 (a value per elem) do not fit
return optimizer {
  name = "x", hyper = { lr = 0.1 }, block = 64,
  step = function() local d = rowsum(gram(g))
    p = p - lr * g / d end }
