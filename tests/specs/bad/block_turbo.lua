-- expect: 4: polar: coefficients "turbo" scale rows by sums of X X^T, which is not possible with blocks (block = 8)
return optimizer {
  name = "x", hyper = { lr = 0.1 }, block = 8, step = function()
    p = p - lr * polar(g, { coefficients = "turbo" }) end }
