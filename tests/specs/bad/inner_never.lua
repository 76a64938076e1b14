-- expect: 0: the wrapper's step never calls inner()
-- rule: sgd
-- with: inner_never
return wrapper {
  name  = "bad",
  step = function()
    p = p - g
  end,
}
