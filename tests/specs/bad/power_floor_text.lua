-- expect: 8: power: floor is a value or a number, not a string
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  state = { L = zeros "rows" },
  step  = rule "adamw",
  matrix = function()
    L = power(gram(g), -1/4, { floor = "1e-6" })
    p = p - lr * mm(L, g)
  end,
}
