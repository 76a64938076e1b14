-- expect: 5: inner(), step(), every() and when() give no value
return optimizer {
  name = "bad",
  matrix = function()
    p = p - step()
  end,
  step = function() p = p - g end,
}
