-- alpha: 0.5 as in the paper; the authors' PyTorch class has 0.8.
return wrapper {
  name  = "lookahead",
  cite  = "Zhang et al. 2019, arXiv:1907.08610",
  use   = "When training is noisy and one copy of the weights is affordable",
  family = "averaging", follows = "pytorch_optimizer.Lookahead 4.1.0",
  doc   = "Each k steps moves slow weights by alpha towards the fast ones, which start again " ..
          "from there",
  args  = { "k", "alpha" },
  hyper = { alpha = { 0.5, min = 0, max = 1 } },
  options = { k = 5 },
  state = { slow = copy(p) },
  step  = function()
    inner()
    every(k, function()
      slow = lerp(slow, p, alpha)
      p = slow
    end)
  end,
}
