-- expect: 6: 'torch' is not declared: functions stand alone: sqrt(x), not torch.sqrt(x)
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - torch.sqrt(g)
    p = p - lr * g
  end,
}
