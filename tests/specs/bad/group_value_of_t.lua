-- expect: 6: 'c' has one value per group, and the wrapper 'skip' counts t for each tensor: count
-- with: skip
return optimizer {
  name = "bad", hyper = { lr = 1e-2, b = 0.9 }, state = { c = zeros "group" },
  step = function()
    c = lr * (1 - b ^ t)
    p = p - c * g
  end,
}
