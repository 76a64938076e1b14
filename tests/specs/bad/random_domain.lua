-- expect: 6: random: 'group' is not a domain to draw for
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - random "group" * g
  end,
}
