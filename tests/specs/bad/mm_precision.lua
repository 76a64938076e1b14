-- expect: 11: mm: products is "f32", "tf32" or "f64", not "fp8"
-- expect: 12: gram: products is "f32", "tf32" or "f64", not "bf16"; only a whole rule can have that precision
-- expect: 13: mm: products is "f32", "tf32" or "f64", not a number
-- expect: 14: mm knows products, not 'product'
-- expect: 15: gram's options are a table: gram(x, { products = "tf32" })
-- expect: 16: mm knows products, but an option has no name; write NAME = VALUE
-- expect: 17: mm: products is "f32", "tf32" or "f64", not a value that varies; an option may choose it
-- expect: 18: 'tf32' is not declared
return optimizer {
  name = "bad", hyper = { lr = 1 }, state = { L = zeros "rows" }, step = rule "sgd", matrix = function()
    L = mm(g, g.T, { products = "fp8" })
    L = L + gram(g, { products = "bf16" })
    L = L + mm(g, g.T, { products = 32 })
    L = L + mm(g, g.T, { product = "tf32" })
    L = L + gram(g, "tf32")
    L = L + mm(g, g.T, { "tf32" })
    L = L + mm(g, g.T, { products = lr })
    L = L + mm(g, g.T, { products = tf32 })
    p = p - lr * mm(L, g)
  end,
}
