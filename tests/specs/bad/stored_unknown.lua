-- expect: 8: stored "typo": there is no state of that name
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  state = { m = zeros },
  step = function()
    m = m + g
    local d = stored "typo"
    p = p - lr * d
  end,
}
