-- expect: 6: Lua's word is ~=; of values, ne(a, b)
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    if lr != 1 then p = p end
    p = p - lr * g
  end,
}
