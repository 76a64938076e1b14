return optimizer {
  name = "solve",
  doc = "Calls that work panel by panel.",
  view = "last",
  state = { A = zeros "rows" },
  step = function() p = p - 0.1 * g end,
  matrix = function()
    A = A + mm(g, g.T)
    p = p - solve(chol(A), g)
  end,
}
