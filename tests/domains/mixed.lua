return optimizer {
  name  = "mixed",
  cite  = "tests/parts/domains.sh",
  doc   = "Rows x rows meets columns",
  state = { L = zeros "rows" },
  step = function()
    L = L + colmax(g)
    p = p - g
  end,
}
