return optimizer {
  name = "qr",
  doc = "A call with steps for matrices that are not settled.",
  view = "last",
  state = { A = zeros "rows", X = zeros "rows" },
  step = function() p = p - 0.1 * g end,
  matrix = function()
    A = 0.9 * A + X
    X = qr(A, { last = X })
    p = p - mm(X, g)
  end,
}
