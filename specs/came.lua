-- 1 / sqrt of the matrix that is approximated by its row and column means.
local function inverse_root(row, col) return rsqrt(row / slice.mean(row)) * rsqrt(col) end

-- lr: the authors' code has no default; 2e-4 is from their README.
-- f32 range: sums of g^2 along a row or a column must stay under 3.4e38, so |g| under 1.8e19 /
-- sqrt(length). Beyond it the whole matrix becomes NaN; an element of a vector stands still. Small
-- gradients stay in range: eps1 outweighs their squares.
return optimizer {
  name  = "came",
  cite  = "Luo et al. 2023, arXiv:2307.02047",
  use   = "In place of Adafactor for large language models when its updates are unstable",
  family = "small state", follows = "came_pytorch.CAME 0.1.3",
  doc   = "Adafactor with momentum, whose update is divided by a factored measure of its own " ..
          "instability",
  view  = "last",
  hyper = {
    lr = { 2e-4, min = 0 }, eps1 = { 1e-30, min = 0 }, eps2 = { 1e-16, min = 0 },
    clip_threshold = { 1, above = 0 },
    beta1 = { 0.9, min = 0, below = 1 }, beta2 = { 0.999, min = 0, below = 1 },
    beta3 = { 0.9999, min = 0, below = 1 }, weight_decay = { 0, min = 0 },
  },
  state = { m = zeros, v = zeros, r = zeros "row", c = zeros "col", ri = zeros "row",
            ci = zeros "col" },
  step = function()
    v = beta2 * v + (1 - beta2) * (g * g + eps1)
    local u = g / sqrt(v)
    u = (1 / max(1, rms(u) / clip_threshold)) * u
    m = lerp(m, u, 1 - beta1)
    p = descend(shrink(p, lr * weight_decay), m, lr)
  end,
  matrix = function()
    local sq = g * g + eps1
    r = lerp(r, rowmean(sq), 1 - beta2)
    c = lerp(c, colmean(sq), 1 - beta2)
    local u = g * inverse_root(r, c)
    u = (1 / max(1, rms(u) / clip_threshold)) * u
    m = lerp(m, u, 1 - beta1)
    local off = (u - m) * (u - m) + eps2
    ri = lerp(ri, rowmean(off), 1 - beta3)
    ci = lerp(ci, colmean(off), 1 - beta3)
    p = descend(shrink(p, lr * weight_decay), m * inverse_root(ri, ci), lr)
  end,
}
