-- expect: 4: descend's second argument is x, or { x, plus = y, rate = s, times = z, over = d }
return optimizer {
  name = "descend_table", hyper = { lr = 0.1 },
  step = function() p = descend(p, { g, by = 2 }, lr) end,
}
