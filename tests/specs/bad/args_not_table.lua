-- expect: 6: 'args' must be a table
-- rule: sgd
-- with: args_not_table(2)
return wrapper {
  name  = "bad",
  args = "size",
  step = function()
    inner()
  end,
}
