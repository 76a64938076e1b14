-- expect: 3: 'rank' as a share cannot be combined with 'block'
return optimizer {
  name = "bad", rank = { share = 0.5, of = "rows" }, block = 16,
  step = function() p = p - g end,
}
