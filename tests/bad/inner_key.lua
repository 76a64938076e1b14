-- expect: 5: inner { … } knows 't' alone
-- rule: sgd
-- with: inner_key
return wrapper {
  name = "inner_key", step = function() inner { g = g } end,
}
