-- expect: -: --with '../clip': expected
-- with: ../clip
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * g
  end,
}
