-- expect: 4: eye needs the domain of a square value: eye(1, "rows"), eye(1, "cols") or eye(1, "rank")
return optimizer {
  name  = "bad",
  state = { L = eye(1, "row") },
  step = function() p = p - g end,
}
