-- expect: 6: ring 's': 'k' is 200: the number of values is a whole number from 1 to 128
-- expect: 7: ring 'r': 'lr' is a hyperparameter: the number of values must be an option
return optimizer {
  name  = "bad", hyper = { lr = 0.1 }, options = { k = 200 },
  state = {
    s = ring(k),
    r = ring(lr),
  },
  step = function() s:push(g) r:push(g) p = p - lr * s[1] - r[1] end,
}
