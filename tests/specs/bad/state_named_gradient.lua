-- expect: 4: state 'g' takes a name the language uses itself
return optimizer {
  name  = "bad",
  state = { g = zeros },
  step = function()
    p = p - g
  end,
}
