-- expect: 5: norm: 'L' (a value per block_rows) belongs to a block of the matrix (block = 64), and its reductions do: slice.norm
-- expect: 6: global.max: 'M' (a value per block_cols) belongs to a block of the matrix (block = 64), and its reductions do: slice.max
return optimizer {
  name = "x", hyper = { lr = 0.1 }, state = { L = eye(1, "rows"), M = eye(1, "cols") }, block = 64, step = function()
    L = L / norm(L)
    M = M / global.max(M)
    p = p - lr * mm(L, g)
  end }
