-- k counts the group's steps, as the authors do, also for a tensor that joins late.
-- As pytorch_optimizer 4.1 has it, after Konobeev's code (mknbv/adashift). p moves from step
-- keep_num + 1 on.
return optimizer {
  name  = "adashift",
  cite  = "Zhou et al. 2019, arXiv:1810.00143",
  use   = "When a few large gradients of Adam's second moment keep it from converging",
  family = "adam", follows = "pytorch_optimizer 4.1",
  doc   = "Adam whose second moment takes the gradient of keep_num steps ago, reduced over the " ..
          "tensor, and whose " ..
          "first moment is the weighted mean of the gradients since",
  hyper = { lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
            beta2 = { 0.999, min = 0, below = 1 },
            eps = { 1e-10, min = 0 } },
  options = { keep_num = 10, reduce = { "max", "mean", "none" } },
  state = { grads = ring(keep_num), squares = ring(keep_num, "tensor"), m = zeros, v = zeros,
            w = zeros "tensor", k = zeros "group" },
  step = function()
    k = k + 1
    local full, old, total = eq(grads.count, keep_num), grads[keep_num], 0
    for i = 0, keep_num - 1 do total = total + beta1 ^ i end
    grads:push(g)
    m = beta1 * (m - beta1 ^ (keep_num - 1) / total * old) + g / total
    local new
    if reduce == "none" then
      new = lerp(v, old * old, 1 - beta2)
    -- reduced when it is new: then one pass over the elements is enough
    else
      new = lerp(w, squares[keep_num], 1 - beta2)
      if reduce == "max" then squares:push(max(g * g)) else squares:push(mean(g * g)) end
    end
    when(full, function()
      if reduce == "none" then v = new else w = new end
      p = descend(p, m / (sqrt(new / (1 - beta2 ^ max(1, k - keep_num))) + eps), lr)
    end)
  end,
}
