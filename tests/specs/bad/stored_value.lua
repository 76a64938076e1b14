-- expect: 7: stored takes the name of a state, or of p: stored "p"
return optimizer {
  name  = "bad",
  state = { m = zeros },
  step = function()
    p = p - g
    m = stored(p)
  end,
}
