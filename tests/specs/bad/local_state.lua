-- expect: 5: state 'm' is never written: line 7 assigns a local of that name; leave out 'local'
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  state = { m = zeros },
  step = function()
    local m = lerp(m, g, 0.1)
    p = p - lr * m
  end,
}
