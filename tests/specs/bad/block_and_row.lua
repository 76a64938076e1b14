-- expect: 6: add: 'L' (a value per block_rows) and 'r' (a value per row, made by sum on line 5) do not fit
-- expect: 8: mul: 'M' (a value per block_cols) and 'n' (a value per slice, made by norm on line 7) do not fit
return optimizer {
  name = "x", hyper = { lr = 0.1 }, state = { L = zeros "rows", M = zeros "cols" }, block = 64, step = function()
    local r = rowsum(g)
    L = L + r
    local n = slice.norm(g)
    M = M * n
    p = p - lr * g
  end }
