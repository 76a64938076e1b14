-- expect: 7: no hyperparameter or option 'sise'
-- rule: sgd
-- with: args_unknown_name(2)
return wrapper {
  name  = "bad",
  args = { "sise" },
  hyper = { size = 1 },
  step = function()
    inner()
    p = p * size
  end,
}
