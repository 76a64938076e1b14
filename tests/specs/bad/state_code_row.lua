-- expect: 4: types: the state 'm' has one value per row, and q8 is for elementwise states: store it as f32 or bf16
return optimizer {
  name  = "bad",
  state = { m = zeros("row", "q8") },
  step = function()
    m = rowsum(g)
    p = p - m
  end,
}
