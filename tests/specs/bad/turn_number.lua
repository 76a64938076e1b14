-- expect: 6: .T: 'lr' (a value per group) is one number: it has no transpose
-- expect: 7: a symbolic value has no fields but T, which is its transpose: a transpose is a.T
return optimizer {
  name  = "bad", hyper = { lr = 1 },
  step = function()
    p = p - lr.T * g
    p = p - g.t
  end,
}
