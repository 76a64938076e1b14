-- expect: 4: 'd' has a value for each row of a block, and the rule has no blocks: say block = 1024
return optimizer {
  name = "x", hyper = { lr = 0.1 }, state = {
    d = zeros "block row" },
  step = function() d = rowsum(g) p = p - lr * g end }
