-- expect: 4: input 'h' has a domain of blocks: an input must be per tensor, row, column or element
return optimizer {
  name = "x", hyper = { lr = 0.1 }, block = 8,
  inputs = { h = "rows" },
  step = function() p = p - lr * mm(h, g) end }
