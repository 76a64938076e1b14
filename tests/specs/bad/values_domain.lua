-- expect: 5: value 'seen' must name the domain it is read by: seen = "group", or "tensor"
return optimizer {
  name   = "bad",
  hyper  = { lr = 0.1 },
  values = { seen = zeros },
  step = function()
    seen = 1
    p = p - lr * g
  end,
}
