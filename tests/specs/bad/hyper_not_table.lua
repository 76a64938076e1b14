-- expect: 4: 'hyper' must be a table, not a number
return optimizer {
  name  = "bad",
  hyper = 0.1,
  step = function()
    p = p - g
  end,
}
