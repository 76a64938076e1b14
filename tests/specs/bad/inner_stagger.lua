-- expect: 5: inner() inside every(k, { stagger = true }, …): the inner rule would be at a different step for each tensor
-- rule: sgd
-- with: inner_stagger
return wrapper {
  name = "inner_stagger", step = function() every(2, { stagger = true }, function() inner() end) end,
}
