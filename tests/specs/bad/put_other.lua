-- expect: 4: the indices i come from topk
return optimizer {
  name = "bad", rank = 2, step = function() p = p - g end,
  matrix = function() p = put(p, sort(rowsum(g)), 0) end,
}
