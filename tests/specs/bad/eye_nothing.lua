-- expect: 4: eye needs what stands on the diagonal and its domain: eye(1, "rows") or eye(eps, "cols")
return optimizer {
  name  = "bad",
  state = { L = eye "rows" },
  step = function() p = p - g end,
}
