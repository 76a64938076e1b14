-- As the first author's class Snoo (modded-nanogpt f411b3d, track 2, 2025-09-16), with the values
-- of that record; the class has no defaults. Its first outer step follows step 1. offset=0: it
-- follows step k, as in the paper's algorithm and in MuLoCo (track 3). Without momentum this is
-- lookahead. outer_lr is not part of a schedule of lr.
return wrapper {
  name  = "snoo",
  cite  = "Kallusky et al. 2025, arXiv:2510.15830",
  use   = "In long runs with AdamW or Muon when two copies of the weights are affordable",
  family = "averaging", follows = "KellerJordan/modded-nanogpt f411b3d",
  doc   = "Each k steps moves slow weights by Nesterov momentum towards the fast ones, which " ..
          "start again from there",
  args  = { "k", "outer_lr", "outer_momentum" },
  hyper = { outer_lr = { 0.68, min = 0 }, outer_momentum = { 0.37, min = 0, below = 1 } },
  options = { k = 28, offset = 1 },
  state = { slow = copy(p), b = zeros },
  step  = function()
    inner()
    every(k, { offset = offset }, function()
      local s = slow - p
      b = outer_momentum * b + s
      slow = slow - outer_lr * (s + outer_momentum * b)
      p = slow
    end)
  end,
}
