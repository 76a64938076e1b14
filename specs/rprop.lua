-- As torch.optim.Rprop. lr at the first step is the first step size of every element; later changes
-- have no effect.
return optimizer {
  name  = "rprop",
  cite  = "Riedmiller and Braun 1993, ICNN",
  use   = "For full-batch training only; mini-batches break its sign test",
  family = "sign", follows = "torch.optim.Rprop 2.13.0",
  doc   = "Steps by signs, with a step size for each element that grows while the sign stays " ..
          "and shrinks when it flips",
  hyper = {
    lr = { 1e-2, min = 0 }, etaminus = { 0.5, above = 0, below = 1 }, etaplus = { 1.2, above = 1 },
    step_size_min = { 1e-6, min = 0 }, step_size_max = { 50, above = 0 },
  },
  state = { prev = zeros, step_size = zeros },
  step = function()
    local turn = sign(g) * sign(prev)
    local factor = where(gt(turn, 0), etaplus, where(lt(turn, 0), etaminus, 1))
    step_size = clamp(where(eq(step_size, 0), lr, step_size) * factor, step_size_min, step_size_max)
    prev = where(lt(turn, 0), 0, g)
    p = p - sign(prev) * step_size
  end,
}
