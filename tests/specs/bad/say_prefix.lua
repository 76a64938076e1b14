-- expect: 7: 'max_norm' is not declared: it belongs to the wrapper clip, and each spec sees its own names alone
-- with: clip(1)
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * max_norm * g
  end,
}
