-- expect: 7: the local 'kind' is assigned in every() and is a string
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local kind = "a"
    every(5, function() kind = "b" end)
    if kind == "b" then p = p - lr * g end
  end,
}
