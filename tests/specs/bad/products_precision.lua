-- expect: 4: 'products' is "f64", "f32", "tf32", "bf16" or "f16", not "fp8"
return optimizer {
  name     = "bad",
  products = "fp8",
  step = function() p = p - g end,
}
