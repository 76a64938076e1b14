-- expect: 7: mm: argument 1 is 'lr' (a value per group): it takes matrices, and values by row or column
-- expect: 8: gram: argument 1 is the number 2: it takes matrices, and values by row or column
return optimizer {
  name  = "bad",
  hyper = { lr = 1 },
  matrix = function()
    p = p - mm(lr, g)
    p = p - gram(2)
  end,
  step = function() p = p - g end,
}
