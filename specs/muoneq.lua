-- As karpathy/nanochat 92d63d4 without its second moment (NorMuon) and cautious decay. Rows,
-- columns or both are brought to their mean norm before the orthogonal factor is taken, which
-- starts from the matrix over its norm (theirs over 1.01 times that). renormalize: Muon+, the
-- factor gets the norm sqrt(shorter side) of an orthogonal matrix. Weight decay has the rate of the
-- step, with Muon's factor for tall matrices.
-- products: f16, as in muon.
return optimizer {
  name  = "muoneq",
  cite  = "MuonEq, 2026, arXiv:2603.28254; renormalize: Muon+, 2026, arXiv:2602.21545",
  use   = "In place of Muon when rows or columns of the momentum differ strongly in norm",
  family = "muon", follows = "karpathy/nanochat 92d63d4",
  doc   = "Muon of a momentum whose rows or columns were brought to equal norms; AdamW for what " ..
          "is no matrix",
  hyper = { lr = { 0.02, min = 0 }, momentum = { 0.95, min = 0, below = 1 },
            weight_decay = { 0, min = 0 } },
  options = {
    nesterov = true, equilibrate = { "rows", "cols", "both" }, renormalize = false, steps = 0,
    coefficients = { "nanochat", "jordan", "polar_express", "cans", "turbo" },
  },
  products = "f16",
  state = { m = zeros },
  step  = rule "adamw",
  matrix = function()
    m = lerp(m, g, 1 - momentum)
    local u = m
    if nesterov then u = lerp(g, m, momentum) end
    if equilibrate ~= "cols" then u = u * (slice.norm(u) / sqrt(nrows) / max(rownorm(u), 1e-6)) end
    if equilibrate ~= "rows" then u = u * (slice.norm(u) / sqrt(ncols) / max(colnorm(u), 1e-6)) end
    local how = { steps = steps, coefficients = coefficients }
    if coefficients == "nanochat" then
      how.coefficients = {
        { 8.156554524902461, -22.48329292557795, 15.878769915207462 },
        { 4.042929935166739, -2.808917465908714, 0.5000178451051316 },
        { 3.8916678022926607, -2.772484153217685, 0.5060648178503393 },
        { 3.285753657755655, -2.3681294933425376, 0.46449024233003106 },
        { 2.3465413258596377, -1.7097828382687081, 0.42323551169305323 } }
    end
    local o = polar(u, how)
    if renormalize then o = (sqrt(min(nrows, ncols)) / max(slice.norm(o), 1e-6)) * o end
    local rate = lr * sqrt(max(1, nrows / ncols))
    p = descend(shrink(p, rate * weight_decay), o, rate)
  end,
}
