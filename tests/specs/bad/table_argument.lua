-- expect: 6: exp: argument 1 is a table, not a value or a number
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - exp({ 1, 2 }) * g
  end,
}
