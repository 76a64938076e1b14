-- expect: 4: shrink takes 2 to 3 arguments, got 1
return optimizer {
  name = "shrink_count", hyper = { lr = 0.1 },
  step = function() p = descend(shrink(p), g, lr) end,
}
