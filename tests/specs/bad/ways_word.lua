-- expect: 5: named takes a text
return optimizer {
  name = "bad",
  step = function()
    if named(3) then p = p - g else p = p + g end
  end,
}
