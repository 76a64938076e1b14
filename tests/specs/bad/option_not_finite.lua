-- expect: 6: option 'rate' is a number, not 'inf'
-- options: rate=inf
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  options = { nesterov = false, k = 5, rate = 0.5, style = { "torch", "tf" } },
  step = function()
    p = p - lr * g
  end,
}
