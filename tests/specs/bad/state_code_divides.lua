-- expect: 4: reaches a denominator, root or logarithm (div, state_code_divides.lua:7), where a value that q8 rounds to 0
return optimizer {
  name  = "bad",
  state = { m = zeros("elem", "q8") },
  step = function()
    m = m + g
    p = p - 1 / (m + 1)
  end,
}
