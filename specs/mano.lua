-- As the authors' code (xie-lab-ml/Mano b78b952). Odd steps of the binding take columns, even steps
-- take rows; a step that wrapper `skip` skips counts too. The part of the momentum along the
-- weights is removed, and the rest is brought to unit norm.
-- Other commits of their mano.py, and mano_v2.py, project along the weights as they are, without
-- norm 1; v2 has nesterov on and adds eps to the norm. They take tensors of two dimensions alone.
return optimizer {
  name  = "mano",
  cite  = "Gu and Xie 2026, arXiv:2601.23000",
  use   = "In place of Muon when Newton-Schulz products are too expensive",
  family = "muon", follows = "xie-lab-ml/Mano b78b952",
  doc   = "Momentum without its part along the weights, with columns and rows of norm 1 in " ..
          "turn; " ..
          "AdamW for what is no matrix",
  hyper = {
    lr = { 1e-3, min = 0 }, weight_decay = { 0.1, min = 0 }, eps = { 1e-8, above = 0 },
    momentum = { 0.95, min = 0, below = 1 },
  },
  options = { nesterov = false },
  state = { m = zeros },
  step  = rule "adamw",
  matrix = function()
    m = momentum * m + g
    local u = m
    if nesterov then u = g + momentum * m end
    local function direction(norms, along)
      local function inverse(x) return 1 / max(norms(x), eps) end
      local n = inverse(p)
      local x = u - (n * along(u, p) * n) * p
      return inverse(x) * x
    end
    local x, length = direction(rownorm, rowdot), ncols
    every(2, { offset = 1 }, function() x, length = direction(colnorm, coldot), nrows end)
    p = descend(shrink(p, lr * weight_decay), x, lr * (0.2 * sqrt(length)))
  end,
}
