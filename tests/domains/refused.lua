return optimizer {
  name  = "refused",
  cite  = "tests/domains.sh",
  doc   = "A fold along one of two axes of a small value",
  state = { L = zeros "gram", r = zeros "row" },
  step = function()
    L = 0.5 * L + rowmax(g)
    r = rowsum(L)
    p = p - r
  end,
}
