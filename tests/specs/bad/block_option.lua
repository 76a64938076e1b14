-- expect: 4: 'block' must be a whole number, or the name of an option that is one: 'side' is not
return optimizer {
  name = "x", hyper = { lr = 0.1 }, state = { L = zeros "rows" },
  block = "side",
  step = function() L = gram(g) p = p - lr * mm(L, g) end }
