-- expect: 13: power takes a square value, one over rows and rows, cols and cols or rank and rank; it got 'g' (a value per elem)
-- expect: 14: power(A, r): r is a number other than 0 that is known when the rule is compiled
-- expect: 15: power(A, r): r is a number other than 0
-- expect: 16: power knows ridge, relative, floor and last, not 'ridges'; did you mean 'ridge'
-- expect: 17: power: ridge is one number, not 'g' (a value per elem)
-- expect: 18: power's options are a table: power(A, -1/4, { ridge = 1e-6 })
-- expect: 19: chol takes a square value
-- expect: 20: qr takes a square value, one over rows and rows, cols and cols or rank and rank, or one over rows and rank or cols and rank
return optimizer {
  name  = "bad", hyper = { n = 5 },
  step = function() p = p - g end,
  matrix = function()
    p = p - mm(power(g, -0.5), g)
    p = p - mm(power(gram(g), 0), g)
    p = p - mm(power(gram(g), n), g)
    p = p - mm(power(gram(g), 2, { ridges = 1 }), g)
    p = p - mm(power(gram(g), 2, { ridge = g }), g)
    p = p - mm(power(gram(g), 2, 3), g)
    p = p - mm(chol(rowsum(g)), g)
    p = p - mm(qr(g), g)
  end,
}
