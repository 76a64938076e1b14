-- steps = 0: the number of steps that the coefficients were published with (jordan: 5; given as a,
-- b, c: 5).
-- products: f16 is enough, because singular values only have to come near 1. Error at condition
-- 1e4: 0.01 in plain form, 0.04 in Gram form (half the work on long matrices); bf16: 0.1, plain
-- form only. form = "auto" respects this.
return optimizer {
  name  = "muon",
  cite  = "Jordan et al. 2024, kellerjordan.github.io/posts/muon; scale rms: Liu et al. 2025, " ..
          "arXiv:2502.16982",
  use   = "For the hidden matrices of transformers; AdamW steps embeddings, heads and vectors",
  family = "muon",
  follows = "torch.optim.Muon 2.13.0; other coefficients: NVIDIA-NeMo/Emerging-Optimizers fd77292",
  doc   = "Momentum whose matrices are replaced by their orthogonal factor; AdamW for what is " ..
          "no matrix",
  hyper = { lr = { 0.02, min = 0 }, momentum = { 0.95, min = 0, below = 1 },
            weight_decay = { 0, min = 0 } },
  options = {
    nesterov = true, steps = 0, form = { "auto", "plain", "gram" },
    scale = { "jordan", "rms", "spectral" },
    coefficients = { "jordan", "quintic", "polar_express", "cans", "turbo", "cubic5", "deepseekv4",
                     "given" },
    -- a, b, c: for coefficients = "given"; eps: least norm to divide by
    a = 3.4445, b = -4.775, c = 2.0315, eps = 0.0,
  },
  products = "f16",
  state = { m = zeros },
  step  = rule "adamw",
  matrix = function()
    m = lerp(m, g, 1 - momentum)
    local u = m
    if nesterov then u = lerp(g, m, momentum) end
    local size = sqrt(nrows / ncols)
    if scale == "jordan" then size = max(1, size) end
    if scale == "rms" then size = 0.2 * sqrt(max(nrows, ncols)) end
    p = shrink(p, lr * weight_decay)
    local set, times = coefficients, steps
    if set == "given" then set, times = { { a, b, c } }, steps == 0 and 5 or steps end
    p = descend(p, polar(u, { steps = times, coefficients = set, form = form, eps = eps }),
                lr * size)
  end,
}
