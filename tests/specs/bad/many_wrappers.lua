-- expect: -: --with names over 15 wrappers
-- with: clip(1),clip(1),clip(1),clip(1),clip(1),clip(1),clip(1),clip(1),clip(1),clip(1),clip(1),clip(1),clip(1),clip(1),clip(1),clip(1)
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * g
  end,
}
