-- expect: 8: mm: products is "f32" or "tf32", not "fp8"
-- expect: 9: gram: products is "f32" or "tf32", not "bf16"; only a whole rule can have that precision
-- expect: 10: mm: products is "f32" or "tf32", not a number
-- expect: 11: mm knows products, not 'product'
-- expect: 12: gram's options are a table: gram(x, { products = "tf32" })
return optimizer {
  name = "bad", state = { L = zeros "rows" }, step = rule "sgd", matrix = function()
    L = mm(g, g.T, { products = "fp8" })
    L = L + gram(g, { products = "bf16" })
    L = L + mm(g, g.T, { products = 32 })
    L = L + mm(g, g.T, { product = "tf32" })
    L = L + gram(g, "tf32")
    p = p - mm(L, g)
  end,
}
