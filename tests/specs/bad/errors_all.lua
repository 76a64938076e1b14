-- expect: 13: hyperparameter 'beta' must be a number
-- expect: 14: the default 2 of hyperparameter 'decay' is outside its range [0, 1]
-- expect: 16: state 'm' must be zeros
-- expect: 18: 'graad' is not declared
-- expect: 21: Lua's 'if' cannot test 't'
-- expect: 22: sum needs a value that varies inside a tensor
-- expect: 26: 'n' has one value per group
-- expect: 30: 'w' is not declared
-- nothing: 'm' is not declared
return optimizer {
  name  = "bad",
  hyper = {
    lr = 0.1, beta = "0.9",
    decay = { 2, min = 0, max = 1 },
  },
  state = { m = 3, n = zeros "group" },
  step = function()
    local x = lr * graad
    m = beta * m + decay * x
    local y = sqrt(m) + x
    if t == 1 then p = p - y end
    p = p - sum(lr) * m
    p = p - y
  end,
  matrix = function()
    n = n + g
    p = p - n * m
  end,
  extra = function()
    p = p - w
  end,
}
