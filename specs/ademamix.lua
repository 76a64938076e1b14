-- warmup: off by default, as in the authors' code, which recommends both warm-ups over all steps of
-- training. 0 steps switch one of them off.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))), as in torch: the
-- element stands still from then on. |g| under 1e-21 adds 0 to v; eps outweighs sqrt(v) long before
-- that.
return optimizer {
  name  = "ademamix",
  cite  = "Pagliardini, Ablin and Grangier 2024, arXiv:2409.03137",
  use   = "For long language-model runs, where very old gradients still carry information",
  family = "adam", follows = "apple/ml-ademamix c3d73c0",
  doc   = "AdamW with a second, slow momentum mixed in; " ..
          "the warmup option ramps alpha and beta3 over alpha_warmup and beta3_warmup steps",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    beta3 = { 0.9999, above = 0, below = 1 }, alpha = { 2, min = 0 },
    beta3_warmup = { 10000, min = 0 },
    alpha_warmup = { 10000, min = 0 }, eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 },
  },
  options = { warmup = false },
  state = { m = zeros, slow = zeros, v = zeros },
  step = function()
    local a, b3 = alpha, beta3
    if warmup then
      local x, from, to = t / beta3_warmup, log(beta1 + 1e-8), log(beta3 + 1e-8)
      a = where(lt(t, alpha_warmup), t / alpha_warmup, 1) * alpha
      -- half-life grows evenly
      b3 = where(lt(t, beta3_warmup), exp(from * to / ((1 - x) * to + x * from)), beta3)
    end
    p = shrink(p, lr * weight_decay)
    m = lerp(m, g, 1 - beta1)
    slow = lerp(slow, g, 1 - b3)
    v = beta2 * v + (1 - beta2) * g * g
    local root = (1 / sqrt(1 - beta2 ^ t)) * sqrt(v) + eps
    p = descend(p, { m, plus = slow, rate = lr * a, over = root }, lr / (1 - beta1 ^ t))
  end,
}
