-- expect: 4: mm: the result of sum on line 4 (a value per col) belongs to the whole matrix, but products work block by block (block = 64)
return optimizer {
  name = "x", hyper = { lr = 0.1 }, state = { r = zeros "row" }, block = 64, step = function()
    local c = colsum(g) r = mm(g, c)
    p = p - lr * g
  end }
