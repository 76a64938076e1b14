-- expect: 5: inner { apart = … } is true or false
-- rule: sgd
-- with: apart_flag
return wrapper {
  name = "apart_flag", step = function() inner { apart = 3 } end,
}
