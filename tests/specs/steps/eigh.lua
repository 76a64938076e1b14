return optimizer {
  name = "eigh",
  doc = "A call whose steps surround cuSOLVER.",
  view = "last",
  state = { A = zeros "rows", X = zeros "rows" },
  step = function() p = p - 0.1 * g end,
  matrix = function()
    A = A + mm(g, g.T)
    X = select(2, eigh(A, { last = X }))
    p = p - mm(X, g)
  end,
}
