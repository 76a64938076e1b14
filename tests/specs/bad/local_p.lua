-- expect: 6: no entry assigns p: this is a local of that name; leave out 'local': p = …
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local p = p - lr * g
  end,
}
