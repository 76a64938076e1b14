-- expect: 8: rowsum needs a value that varies by element
-- expect: 8: 'n' (a value per tensor
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local n = norm(g)
    p = p - rowsum(n) * g
  end,
}
