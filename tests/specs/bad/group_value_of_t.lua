-- expect: 7: 'c' has one value per group, and the wrapper 'skip' counts t for each tensor
-- expect: k = zeros "group" and k = k + 1 in step, and write k in place of t
-- with: skip
return optimizer {
  name = "bad", hyper = { lr = 1e-2, b = 0.9 }, state = { c = zeros "group" },
  step = function()
    c = lr * (1 - b ^ t)
    p = p - c * g
  end,
}
