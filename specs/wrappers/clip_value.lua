return wrapper {
  name  = "clip_value",
  cite  = "Mikolov 2012, PhD thesis, Brno University of Technology",
  doc   = "Clips each element of the gradient to [-max_value, max_value]",
  args  = { "max_value" },
  hyper = { max_value = { 1, min = 0, max = inf } },
  step  = function()
    g = clamp(g, -max_value, max_value)
    inner()
  end,
}
