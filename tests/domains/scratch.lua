-- Values over two axes, without products: broadcasts, draws, and folds to a matrix and to all
-- tensors.
return optimizer {
  name  = "scratch",
  cite  = "tests/parts/domains.sh",
  doc   = "States of rows x rows and cols x cols",
  view  = "last",
  hyper = { lr = 0.125 },
  state = { L = zeros "rows", R = zeros "cols", N = zeros "rows", s = zeros "slice",
            all = zeros "group" },
  step = function()
    p = p - lr * g
    all = 0.5 * all + global.max(max(g))
  end,
  matrix = function()
    L = 0.75 * L + rowmax(g)
    R = (0.5 * R - colmin(g)) + slice.max(g)
    N = normal "rows" + rowsum(g)
    s = slice.sum(R * R) + mean(L)
    all = 0.5 * all + global.max(max(L))
    p = p - lr * g / (1 + abs(s)) + 1e-3 * rowmax(g) - 1e-3 * all
  end,
}
