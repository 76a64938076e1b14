-- expect: -: --with names over 15 wrappers
-- with: skip,skip,skip,skip,skip,skip,skip,skip,skip,skip,skip,skip,skip,skip,skip,skip
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * g
  end,
}
