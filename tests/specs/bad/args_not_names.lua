-- expect: 6: 'args' must list names of hyperparameters and options
-- rule: sgd
-- with: args_not_names(2)
return wrapper {
  name  = "bad",
  args = { 1 },
  step = function()
    inner()
  end,
}
