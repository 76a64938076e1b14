-- expect: 8: 'apart_rule' changes p in another way than by p = shrink(p, …)
-- with: cautious_decay
return optimizer {
  name = "apart_rule", hyper = { lr = 0.1 },
  step = function()
    local x = sign(g)
    -- descend(p, x, lr) would be accepted
    p = p - lr * x
  end,
}
