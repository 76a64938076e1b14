-- expect: 6: descend: a wrapper takes this step apart, so its rate is lr
-- with: cautious_decay
return optimizer {
  name = "apart_rate", hyper = { lr = 0.1 },
  step = function()
    p = descend(p, g, max(lr, 0.1))
  end,
}
