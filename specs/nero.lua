-- As the authors' code (jxbz/nero 32436c0). They centre and normalise the rows of matrices when the
-- optimizer is made; here that happens at the start of the first step, whose gradient is that of
-- the weights before it. A row of norm up to 1e-30 counts as 0 and stays as it is.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta))): the row or element
-- stands still then.
local function balanced(x)
  x = x - rowmean(x)
  local n = rownorm(x)
  return x * where(gt(n, 1e-30), 1 / n, 1)
end

-- second: the second moment of a row or element; size: that of the weights, kept from the first
-- step on
local function move(second, size)
  scale = where(eq(t, 1), where(gt(size, 0), size, 0.01), scale)
  p = descend(p, where(gt(second, 0), g * rsqrt(second / (1 - beta ^ t)), 0), lr * scale)
end

return optimizer {
  name  = "nero",
  cite  = "Liu et al. 2021, arXiv:2102.07227",
  use   = "When no rate should be tuned: each neuron has a fixed norm and one rate serves all",
  family = "layerwise", follows = "jxbz/nero 32436c0",
  doc   = "Steps of lr for each neuron relative to its size, with weights of a neuron kept at " ..
          "mean 0 and norm 1",
  hyper = { lr = { 0.01, min = 0 }, beta = { 0.999, min = 0, below = 1 } },
  options = { constraints = true },
  state = { v = zeros, v_row = zeros "row", scale = zeros "tensor" },
  step = function()
    v = beta * v + (1 - beta) * g * g
    move(v, mean(abs(p)))
  end,
  matrix = function()
    if constraints then p = where(eq(t, 1), balanced(p), p) end
    v_row = beta * v_row + (1 - beta) * rownorm(g) ^ 2
    move(v_row, mean(rownorm(p)))
    if constraints then p = balanced(p) end
  end,
}
