-- expect: 6: sum needs a value that varies inside a tensor (slice, row, col, rows, cols, elem); 'lr' (a value per group) does not
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - sum(lr) * g
  end,
}
