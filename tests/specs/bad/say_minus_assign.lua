-- expect: 6: syntax error near '-'; Lua has no -=: write x = x - y
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p -= lr * g
    p = p - lr * g
  end,
}
