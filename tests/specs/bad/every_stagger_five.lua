-- expect: 11: over 8 arrays of slots in one rule, or 256 states with them: each different staggered period takes one, of tensors and of blocks
return optimizer {
  name  = "bad",
  state = { a = zeros, b = zeros, c = zeros, d = zeros, e = zeros, f = zeros, h = zeros, i = zeros, j = zeros },
  step = function()
    every(2, { stagger = true }, function() a = g end) every(3, { stagger = true }, function() b = g end)
    every(4, { stagger = true }, function() c = g end) every(5, { stagger = true }, function() d = g end)
    every(6, { stagger = true }, function() e = g end) every(7, { stagger = true }, function() f = g end)
    every(8, { stagger = true }, function() h = g end) every(9, { stagger = true }, function() i = g end)
    p = p - a - b - c - d - e - f - h - i
    every(10, { stagger = true }, function() j = g end)
  end,
}
