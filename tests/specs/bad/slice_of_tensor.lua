-- expect: 6: slice.mean needs a value that varies inside a matrix (row, col, rows, cols, elem)
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - slice.mean(sum(g)) * g
  end,
}
