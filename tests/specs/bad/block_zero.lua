-- expect: 4: 'block' must be a whole number from 1 to 1048576, or the name of an option
return optimizer {
  name = "x", hyper = { lr = 0.1 }, state = { L = zeros "rows" },
  block = 0,
  step = function() L = gram(g) p = p - lr * mm(L, g) end }
