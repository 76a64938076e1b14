-- expect: 5: the axis 'rank' has no length: say rank = 8
return optimizer {
  name = "bad", step = function() p = p - g end,
  matrix = function()
    local i = topk(rowsum(g))
    p = put(p, i, 0)
  end,
}
