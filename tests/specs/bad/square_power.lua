-- expect: 8: ^ on a square value: 'A' (a value per rows, made by mm on line 7); power(x, n) is the matrix power, mm(x, x) the product
-- expect: 9: ^ on a square value: 'L' (a value per rows)
return optimizer {
  name  = "bad",
  state = { L = zeros "rows" },
  matrix = function()
    local A = gram(g)
    local B = A ^ 2
    L = L ^ -0.25
    p = p - mm(B, g ^ 2) - mm(pow(A, 2), g)
  end,
  step = function() p = p - g end,
}
