-- expect: 6: global.norm needs a value that varies between tensors
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * global.norm(3) * g
  end,
}
