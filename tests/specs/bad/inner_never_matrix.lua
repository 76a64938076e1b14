-- expect: 0: never calls inner()
-- rule: sgd
-- with: inner_never_matrix
return wrapper {
  name  = "bad",
  matrix = function() p = p - g end,
  step = function()
    inner()
  end,
}
