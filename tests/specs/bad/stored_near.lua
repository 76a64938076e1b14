-- expect: 8: stored "momentun": there is no state of that name; did you mean 'momentum'?
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  state = { momentum = zeros },
  step = function()
    momentum = momentum + g
    local d = stored "momentun"
    p = p - lr * d
  end,
}
