-- expect: 6: option 'style' is one of torch, tf, not 'jax'
-- options: style=jax
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  options = { nesterov = false, k = 5, rate = 0.5, style = { "torch", "tf" } },
  step = function()
    p = p - lr * g
  end,
}
