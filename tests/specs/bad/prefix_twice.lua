-- expect: 6: hyperparameter 'size': the name is declared twice
-- rule: sgd
-- with: prefix_twice,prefix_twice,prefix_twice2
return wrapper {
  name  = "bad",
  hyper = { size = 1 },
  step = function()
    inner()
    p = p * size
  end,
}
