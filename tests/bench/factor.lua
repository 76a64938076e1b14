-- One factor per tensor and step, and nothing else, for timing (make bench-factors). Only the first
-- step computes a
-- product: the matrix that every step factors.
return optimizer {
  name = "factor",
  doc  = "A factor of the same matrix at every step",
  options = { what = { "power", "eigh", "qr", "chol" } },
  state = { A = zeros "rows", X = zeros "rows" },
  step = function() p = p - 1e-3 * g end,
  matrix = function()
    every(1e9, { offset = 1 }, function() A = gram(g) + eye(1, "rows") end)
    if what == "power" then X = power(A, -1/4)
    elseif what == "qr" then X = qr(A)
    elseif what == "chol" then X = chol(A)
    else X = select(2, eigh(A)) end
  end,
}
