-- expect: 4: 'block' must be a whole number
return optimizer {
  name = "x", hyper = { lr = 0.1 }, state = { L = zeros "rows" },
  block = 1.5,
  step = function() L = gram(g) p = p - lr * mm(L, g) end }
