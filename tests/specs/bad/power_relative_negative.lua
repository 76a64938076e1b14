-- expect: 8: power: relative is a share of the largest row sum, from 0, not -1
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  state = { L = zeros "rows" },
  step  = rule "adamw",
  matrix = function()
    L = power(gram(g), -1/4, { relative = -1 })
    p = p - lr * mm(L, g)
  end,
}
