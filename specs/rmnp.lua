-- As the authors' code (Dominator-Index/RMNP a662ebc): Muon with rows of unit norm in place of the
-- orthogonal factor. Their nesterov=False uses no momentum at all and is left out.
return optimizer {
  name  = "rmnp",
  cite  = "Deng et al. 2026, arXiv:2603.20527",
  use   = "In place of Muon when products of matrices are too expensive",
  family = "muon", follows = "Dominator-Index/RMNP a662ebc",
  doc   = "Momentum whose rows are brought to norm 1; AdamW for what is no matrix",
  hyper = { lr = { 0.02, min = 0 }, momentum = { 0.95, min = 0, below = 1 },
            weight_decay = { 0, min = 0 } },
  state = { m = zeros },
  step  = rule "adamw",
  matrix = function()
    m = momentum * m + g
    local u = g + momentum * m
    p = shrink(p, lr * weight_decay)
    p = descend(p, u / max(rownorm(u), 1e-12), lr * sqrt(max(1, nrows / ncols)))
  end,
}
