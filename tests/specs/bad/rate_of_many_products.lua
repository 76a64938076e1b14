-- expect: 8: a wrapper takes this step apart, so its rate is lr, or lr times or over other values
-- with: cautious_decay
return optimizer {
  name = "rate_of_many_products", hyper = { lr = 1, beta = 0.5 },
  step = function()
    local r = beta
    for i = 1, 45 do r = r * (r * (beta + i)) end
    p = descend(p, g, r)
  end,
}
