-- expect: 4: 'hyper' holds an entry without a name
return optimizer {
  name  = "bad",
  hyper = { 0.1, 0.2 },
  step = function()
    p = p - g
  end,
}
