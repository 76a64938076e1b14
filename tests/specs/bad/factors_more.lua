-- expect: 7: power: floor is one number, not 'g' (a value per elem)
-- expect: 8: chol: last is the result if the factor fails, one value per pair of rows: 'g' (a value per elem) is not
return optimizer {
  name  = "bad", hyper = { n = 5 },
  step = function() p = p - g end,
  matrix = function()
    p = p - mm(power(gram(g), 2, { floor = g }), g)
    p = p - mm(chol(gram(g), { last = g }), g)
  end,
}
