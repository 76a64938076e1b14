-- expect: 1: args_none takes 0 positional arguments, got 1
-- rule: sgd
-- with: args_none(2)
return wrapper {
  name  = "args_none",
  hyper = { size = 1 },
  step = function()
    inner()
  end,
}
