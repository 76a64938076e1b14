-- expect: 6: option 'k' is a whole number, not '2.5'
-- options: k=2.5
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  options = { nesterov = false, k = 5, rate = 0.5, style = { "torch", "tf" } },
  step = function()
    p = p - lr * g
  end,
}
