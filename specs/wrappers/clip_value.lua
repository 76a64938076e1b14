return wrapper {
  name  = "clip_value",
  cite  = "Mikolov 2012, PhD thesis, Brno University of Technology",
  use   = "When single elements explode and the direction of the gradient may change",
  family = "gradient", follows = "torch.nn.utils.clip_grad_value_ 2.13.0",
  doc   = "Clips each element of the gradient to [-max_value, max_value]",
  args  = { "max_value" },
  hyper = { max_value = { 1, min = 0, max = inf } },
  step  = function()
    g = clamp(g, -max_value, max_value)
    inner()
  end,
}
