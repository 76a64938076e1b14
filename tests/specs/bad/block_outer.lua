-- expect: 4: would vary over rows x rows, whose values belong to blocks (block = 64), but both belong to the whole matrix
return optimizer {
  name = "x", hyper = { lr = 0.1 }, state = { L = zeros "rows" }, block = 64, step = function()
    local r = rowsum(g) L = outer(r, r)
    p = p - lr * mm(L, g)
  end }
