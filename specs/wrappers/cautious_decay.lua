-- As the paper has it; its authors have published no code. gdevos010/simply-pytorch dad68d0 and
-- nanochat do the same.
return wrapper {
  name = "cautious_decay",
  cite = "Chen et al. 2025, arXiv:2510.12402",
  use  = "With decoupled weight decay when decay should never work against the step",
  family = "step", follows = "gdevos010/simply-pytorch dad68d0",
  doc  = "Decays only the weights that the step also moves towards 0",
  step = function()
    local x, rate, amount = inner { apart = true }
    p = shrink(p, where(ge(x * p, 0), amount, 0))
    p = descend(p, x, rate)
  end,
}
