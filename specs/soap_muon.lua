local turned = include("power_iteration").sorted

-- As the MLP matrices of record 14 of modded-nanogpt's track 3 (KellerJordan/modded-nanogpt
-- f411b3d), without its Contra-Muon, NorMuon and u/w floor. precondition_frequency: 1 as in record
-- 44; record 14 has 10. lr and weight_decay are the defaults of its class. Its SOAP step is brought
-- back to the momentum's norm, which polar cancels.
-- limit: they have none, but a square of the size of a vocabulary fits on no GPU; AdamW steps such
-- matrices.
-- products: f32. Rounding errors in the Gram matrices rotate the basis.
-- f32 range: Gram matrices must stay under 3.4e38, so |g| under 1.8e19 / sqrt(longer side). Beyond
-- it the last basis stays, at step 1 the identity.
return optimizer {
  name  = "soap_muon",
  cite  = "Vyas 2025, nikhilvyas.github.io/SOAP_Muon.pdf",
  use   = "For language models when fewer steps are worth longer ones: Muon of SOAP's direction",
  family = "shampoo", follows = "KellerJordan/modded-nanogpt f411b3d",
  doc   = "Muon of the momentum that SOAP preconditions; AdamW for the rest and for sides over " ..
          "the limit",
  hyper = {
    lr = { 0.02, min = 0 }, mu = { 0.95, min = 0, below = 1 }, beta2 = { 0.9, min = 0, below = 1 },
    shampoo_beta = { 0.9, min = 0, below = 1 }, eps = { 1e-8, above = 0 },
    weight_decay = { 0, min = 0 },
  },
  options = { precondition_frequency = 1, limit = 4096 },
  products = "f32",
  state = { m = zeros, v = zeros, L = zeros "rows", R = zeros "cols", X = eye(1, "rows"),
            Y = eye(1, "cols") },
  step  = rule "adamw",
  matrix = function()
    if nrows > limit or ncols > limit then return step() end
    m = lerp(m, g, 1 - mu)
    -- the first gradient only starts the basis
    local u, late, order, _ = lerp(g, m, mu), gt(t, 1)
    local h = mm(mm(X.T, u), Y)
    local square = beta2 * v + (1 - beta2) * h * h
    local scaled = h / (sqrt(square) + eps)
    local back = mm(mm(X, scaled), Y.T)
    when(late, function() v = square end)
    local o = polar(where(late, back, u), { steps = 12, coefficients = { { 2, -1.5, 0.5 } } })
    p = descend(shrink(p, lr * weight_decay), o, lr * sqrt(max(1, nrows / ncols)))
    L, R = lerp(L, gram(g), 1 - shampoo_beta), lerp(R, gram(g.T), 1 - shampoo_beta)
    -- v is permuted as its directions
    every(precondition_frequency, { offset = 1 }, function()
      X, order = turned(L, X)
      v = take(v, order)
      Y, order = turned(R, Y)
      v = take(v, order, "cols")
    end)
    every(1e9, { offset = 1 }, function()
      _, X = eigh(L, { last = X })
      _, Y = eigh(R, { last = Y })
    end)
  end,
}
