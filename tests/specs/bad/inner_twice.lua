-- expect: 8: inner() is called twice in one entry
-- rule: sgd
-- with: inner_twice
return wrapper {
  name  = "bad",
  step = function()
    inner()
    inner()
  end,
}
