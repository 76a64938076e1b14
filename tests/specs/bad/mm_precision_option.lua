-- expect: 5: option 'apply' is one of tf32, f32, not 'bf16'
-- nothing: mm: products
-- options: apply=bf16
return optimizer {
  name = "bad", options = { apply = { "tf32", "f32" } }, step = rule "sgd",
  matrix = function() p = p - mm(gram(g), g, { products = apply }) end,
}
