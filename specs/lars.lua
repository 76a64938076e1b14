-- rate: the learning rate is part of the momentum, as in the paper: v = momentum v + rate g.
-- "outside" is the form of timm and NVIDIA's LARC, p = p - lr v. Both are equal for a constant lr
-- and differ under a schedule. momentum 0.9 is the paper's; timm's default is 0. trust is timm's
-- trust_coeff.
-- Groups without weight decay have the ratio 1 in timm (always_adapt=False), and vectors in
-- pytorch_optimizer; here all have that of their norms, as in the paper.
-- trust_clip: LARC, whose rate for a tensor is at most lr; with rate = "outside".
-- f32 range: every finite gradient. lr * trust * norm(p) / norm(g) is one factor: under 1e-38 it
-- loses digits, and under 1e-45 the tensor stands still.
return optimizer {
  name  = "lars",
  cite  = "You, Gitman and Ginsburg 2017, arXiv:1708.03888",
  use   = "For convolutional networks trained with very large batches",
  family = "layerwise", follows = "timm.optim.Lars 1.0.30",
  doc   = "SGD with momentum whose rate for each tensor follows the ratio of its weight and " ..
          "gradient norms",
  hyper = {
    lr = { 1, min = 0 }, momentum = { 0.9, min = 0, max = 1 }, weight_decay = { 0, min = 0 },
    trust = { 1e-3, above = 0 }, eps = { 1e-8, min = 0 },
  },
  options = { rate = { "inside", "outside" }, trust_clip = false },
  state = { b = zeros },
  step = function()
    local pn, gn = norm(p), norm(g)
    local ratio = trust * pn / (gn + weight_decay * pn + eps)
    ratio = where(both(gt(pn, 0), gt(gn, 0)), ratio, 1)
    if trust_clip then ratio = min(ratio / lr, 1) end
    if rate == "inside" then
      b = momentum * b + (lr * ratio) * (g + weight_decay * p)
      p = p - b
    else
      b = momentum * b + ratio * (g + weight_decay * p)
      p = descend(p, b, lr)
    end
  end,
}
