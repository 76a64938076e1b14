-- expect: 4: input 'h' would lie block by block: an input is by tensor, row, column or element
return optimizer {
  name = "x", hyper = { lr = 0.1 }, block = 8,
  inputs = { h = "rows" },
  step = function() p = p - lr * mm(h, g) end }
