-- expect: 5: inner { … } knows 't', 'g', 'apart' and 'mean'
-- rule: sgd
-- with: inner_key
return wrapper {
  name = "inner_key", step = function() inner { p = p } end,
}
