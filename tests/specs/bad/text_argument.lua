-- expect: 6: lerp: argument 3 is a string
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = lerp(p, g, "0.1")
  end,
}
