-- expect: 5: topk: rank is a share of the rows and may be more than there are cols
return optimizer {
  name = "bad", rank = { share = 0.5, of = "rows" }, step = function() p = p - g end,
  matrix = function()
    local i = topk(colsum(g))
    p = put(p, i, 0)
  end,
}
