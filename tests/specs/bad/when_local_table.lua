-- expect: 8: when() changes a field of the table 'parts'
-- expect: 10: the local 'y' is 'p' (a value per elem)
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local parts = { g }
    when(gt(t, 5), function() parts[2] = 2 * g end)
    local y = lt(t, 3)
    every(2, function() y = p end)
    p = p - lr * parts[1]
  end,
}
