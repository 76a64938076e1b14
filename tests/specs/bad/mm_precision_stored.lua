-- expect: 5: mm: products = "tf32" is not possible in a rule whose products are "f16"
return optimizer {
  name = "bad", products = "f16", step = rule "sgd",
  matrix = function()
    p = p - mm(gram(g), g, { products = "tf32" })
  end,
}
