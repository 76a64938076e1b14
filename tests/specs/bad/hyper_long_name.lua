-- expect: 4: is not an identifier of at most 40
return optimizer {
  name  = "bad",
  hyper = { aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa = 1 },
  step = function()
    p = p - g
  end,
}
