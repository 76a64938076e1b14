-- expect: 6: this rule needs two dimensions
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    error("this rule needs two dimensions")
  end,
}
