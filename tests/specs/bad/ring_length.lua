-- expect: 7: ring takes the number of values, from 1 to 128
return optimizer {
  name  = "bad",
  state = {
    -- the number must be known
    m = zeros,
    s = ring(0),
  },
  step = function() m = g s:push(g) p = p - s[1] end,
}
