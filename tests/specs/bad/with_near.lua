-- expect: -: there is no wrapper 'lokahead' in the library; did you mean 'lookahead'?
-- with: lokahead
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * g
  end,
}
