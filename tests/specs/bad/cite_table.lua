-- expect: 4: 'cite' must be a string
return optimizer {
  name  = "bad",
  cite = { "a", "b" },
  step = function()
    p = p - g
  end,
}
