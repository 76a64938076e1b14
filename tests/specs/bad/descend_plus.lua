-- expect: 3: descend's second argument is x, or { x, plus = y, rate = s
return optimizer { name = "x", hyper = { lr = 1 }, state = { m = zeros }, step = function()
  p = descend(p, { g, plus = m }, lr)
  m = g
end }
