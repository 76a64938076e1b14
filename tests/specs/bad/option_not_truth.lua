-- expect: 6: option 'nesterov' is true or false, not 'yes'
-- options: nesterov=yes
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  options = { nesterov = false, k = 5, rate = 0.5, style = { "torch", "tf" } },
  step = function()
    p = p - lr * g
  end,
}
