-- expect: 2: 'helper' is assigned outside an entry: use 'local'
helper = 3
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - helper * g
  end,
}
