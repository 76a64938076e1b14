-- expect: 7: bad has no option 'nestrov'
-- expect: 7: did you mean 'nesterov'
-- options: nestrov=true
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  options = { nesterov = false, k = 5, rate = 0.5, style = { "torch", "tf" } },
  step = function()
    p = p - lr * g
  end,
}
