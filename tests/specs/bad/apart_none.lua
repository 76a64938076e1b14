-- expect: 10: takes the step of 'apart_none' apart, which has no p = descend(p, x, lr)
-- in: specs/wrappers/cautious_decay.lua
-- with: cautious_decay
return optimizer {
  name = "apart_none", hyper = { lr = 0.1 }, state = { m = zeros },
  step = function()
    m = m + lr * g
  end,
}
