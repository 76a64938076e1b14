-- As pytorch_optimizer's FTRL and McMahan's algorithm 1: lambda_1 and lambda_2 are its L1 and L2,
-- lr its alpha. With both 0 and beta = 0 it is AdaGrad. Elements with |z| <= lambda_1 are 0, also
-- those whose gradients have all been 0. lr_power = -0.5 is the paper's. With lr = 0 nothing
-- changes; theirs gives NaN.
-- f32 range: n is infinite from |g| = 1.8e19 on: the element becomes NaN.
return optimizer {
  name  = "ftrl",
  cite  = "McMahan et al. 2013, KDD",
  use   = "For linear models with sparse features, where most weights should be exactly 0",
  family = "adagrad", follows = "pytorch_optimizer.FTRL 4.1.0",
  doc   = "Follow the regularised leader: AdaGrad's rates with an L1 penalty that makes weights " ..
          "exactly 0",
  hyper = {
    lr = { 1e-3, min = 0 }, lr_power = { -0.5, max = 0 }, beta = { 0, min = 0 },
    lambda_1 = { 0, min = 0 },
    lambda_2 = { 0, min = 0 },
  },
  state = { z = zeros, n = zeros },
  step = function()
    local root, old = eq(lr_power, -0.5), n
    local function power(x) return where(root, sqrt(x), where(gt(x, 0), x ^ -lr_power, 0)) end
    when(gt(lr, 0), function()
      n = n + g * g
      z = z + g - (1 / lr) * (power(n) - power(old)) * p
      local denominator = (1 / lr) * (sqrt(n) + beta) + lambda_2
      p = where(either(le(abs(z), lambda_1), eq(n, 0)), 0, (lambda_1 * sign(z) - z) / denominator)
    end)
  end,
}
