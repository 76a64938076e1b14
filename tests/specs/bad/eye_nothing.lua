-- expect: 4: eye needs the diagonal value and its domain: eye(1, "rows") or eye(eps, "cols")
return optimizer {
  name  = "bad",
  state = { L = eye "rows" },
  step = function() p = p - g end,
}
