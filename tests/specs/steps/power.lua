return optimizer {
  name = "power",
  doc = "A call whose steps are products.",
  view = "last",
  state = { A = zeros "rows", X = zeros "rows" },
  step = function() p = p - 0.1 * g end,
  matrix = function()
    A = A + mm(g, g.T)
    X = power(A, -1, { relative = 0.25, last = X })
    p = p - mm(X, g)
  end,
}
