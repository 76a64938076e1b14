-- expect: 11: s[…] takes a whole number from 1, the newest, to 4
-- expect: 12: s:push(…) is in every() or when(): a ring takes one value at each step
-- expect: 13: 's' is a ring and cannot be assigned: s:push(x)
-- expect: 15: s:push(…) is called twice in one step
-- expect: 16: 's_0' is not declared
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  state = { s = ring(4) },
  step = function()
    p = p - lr * s[5]
    every(2, function() s:push(g) end)
    s = g
    s:push(g)
    s:push(2 * g)
    p = p - s_0
  end,
}
