-- expect: 3: this is a wrapper: put it around a rule with --with
return wrapper {
  name  = "bad",
  step = function()
    inner()
  end,
}
