-- expect: 8: 'mom' is not declared: write 'local mom
-- expect: 8: did you mean 'mm', 'mome'
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  state = { mome = zeros },
  step = function()
    mom = 0.9 * mome + g
    p = p - lr * mom
  end,
}
