return wrapper {
  name  = "centralize",
  cite  = "Yong et al. 2020, arXiv:2004.01461",
  use   = "For convolutional and dense layers, whose gradients then have mean zero in each output",
  family = "gradient", follows = "pytorch_optimizer.centralize_gradient 4.1.0",
  doc   = "Takes the mean of each row (each output channel) out of the gradient of tensors of " ..
          "two and more dimensions",
  step  = function() inner() end,
  matrix = function()
    g = g - rowmean(g)
    inner()
  end,
}
