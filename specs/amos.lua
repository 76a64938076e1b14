-- k counts the group's steps, as the authors do, also for a tensor that joins late.
-- As pytorch_optimizer's Amos, whose target scales are 0.5 for vectors and sqrt(2 / columns) for
-- matrices. Tensors of more dimensions count as matrices of dim 0 x the rest here; theirs take
-- sqrt(1 / dim 1). c and d are the paper's.
-- f32 range: v is kept in f64 and takes every finite f32 gradient.
local function amos(scale)
  k = k + 1
  local size = rms(g) ^ 2
  v = lerp(v, size, 1 - beta)
  local inverse = (1 - beta ^ k) / (v + eps)
  local gamma = lr * lr * inverse * size / sqrt(1 + 0.25 * sqrt(lr) * decay)
  local u = (0.5 * (gamma - extra_l2)) * p + (lr * scale * sqrt(inverse)) * g
  u = (1 / (1 + 0.25 * sqrt(lr * scale) * decay)) * u
  decay = (1 + gamma) * decay + gamma
  if momentum_buffer then
    m = lerp(m, u, 1 - momentum)
    u = m
  end
  p = p - u
end

return optimizer {
  name  = "amos",
  cite  = "Tian and Parikh 2022, arXiv:2210.11693",
  use   = "For pre-training of transformers when neither a schedule nor a decay should be tuned",
  family = "adam", follows = "pytorch_optimizer.Amos 4.1.0",
  doc   = "Adam-like with one second moment a tensor, and weight decay and rate that decay on " ..
          "their own",
  hyper = {
    lr = { 1e-3, min = 0 }, beta = { 0.999, min = 0, below = 1 },
    momentum = { 0.9, min = 0, below = 1 },
    extra_l2 = { 0, min = 0 }, eps = { 1e-18, above = 0 },
  },
  options = { momentum_buffer = false },
  state = { m = zeros, v = zeros "tensor", decay = zeros "tensor", k = zeros "group" },
  step = function() amos(0.5) end,
  matrix = function() amos(sqrt(2 / ncols)) end,
}
