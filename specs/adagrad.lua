-- f32 range: v is infinite from |g| = 1.8e19 on, as in torch: the element stands still from then
-- on. |g| under 2.6e-23 adds 0 to v; eps outweighs sqrt(v) long before that.
return optimizer {
  name  = "adagrad",
  cite  = "Duchi, Hazan and Singer 2011, JMLR 12",
  use   = "For sparse features and convex problems; its rate falls too early for deep networks",
  family = "adagrad", follows = "torch.optim.Adagrad 2.13.0",
  doc   = "Each coordinate's rate falls with the root of its summed squared gradients",
  hyper = {
    lr = { 1e-2, min = 0 }, lr_decay = { 0, min = 0 }, initial_accumulator = { 0, min = 0 },
    eps = { 1e-10, min = 0 }, weight_decay = { 0, min = 0 },
  },
  state = { v = fill(initial_accumulator) },
  step = function()
    local d = g + weight_decay * p
    v = v + d * d
    p = descend(p, { d, over = sqrt(v) + eps }, lr / (1 + (t - 1) * lr_decay))
  end,
}
