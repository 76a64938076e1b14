-- expect: 4: so both rates of it have the same factor lr
-- with: cautious_decay
return optimizer { name = "x", hyper = { lr = 1, a = 1 }, state = { m = zeros }, step = function()
  p = descend(p, { g, plus = m, rate = a }, lr)
  m = g
end }
