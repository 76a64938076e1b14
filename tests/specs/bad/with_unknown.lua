-- expect: -: there is no wrapper 'quantum' in the library
-- with: quantum
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * g
  end,
}
