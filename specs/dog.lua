-- As the authors' package (formll/dog 1.0.3). Distances and gradients are taken over all tensors of
-- all groups, as in the paper; theirs are taken over each group, for which the language has no
-- sums. layerwise: L-DoG, for each tensor alone. init_eta = 0: the first rate comes from reps_rel.
-- The authors advise to evaluate an average of the weights: dog+ema.
return optimizer {
  name  = "dog",
  cite  = "Ivgi, Hinder and Carmon 2023, arXiv:2302.12022",
  use   = "To fine-tune without tuning a rate, with an average of the weights: dog+ema",
  family = "no rate", follows = "formll/dog 8d45cf5",
  doc   = "SGD whose rate is the distance from the first weights over the root of summed " ..
          "squared gradients; lr stays 1",
  hyper = {
    reps_rel = { 1e-6, above = 0 }, lr = { 1, min = 0 }, weight_decay = { 0, min = 0 },
    eps = { 1e-8, above = 0 },
    init_eta = { 0, min = 0 },
  },
  options = { layerwise = false },
  state = { x0 = copy(p), rbar = zeros "group", G = fill(eps, "group"),
            rbar_layer = zeros "tensor", G_layer = fill(eps, "tensor") },
  step = function()
    local x, first, eta = g + weight_decay * p
    if layerwise then
      first = eq(rbar_layer, 0)
      rbar_layer = max(rbar_layer, where(first, reps_rel * (1 + norm(p)), norm(p - x0)))
      G_layer = G_layer + norm(x) ^ 2
      eta = lr * rbar_layer / sqrt(G_layer)
    else
      first = eq(rbar, 0)
      rbar = max(rbar, where(first, reps_rel * (1 + global.norm(p)), global.norm(p - x0)))
      G = G + global.norm(x) ^ 2
      eta = lr * rbar / sqrt(G)
    end
    p = p - where(both(first, gt(init_eta, 0)), init_eta, eta) * x
  end,
}
