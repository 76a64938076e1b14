-- expect: 5: inner { t = … } takes one number per group
-- rule: sgd
-- with: inner_t_of_elements
return wrapper {
  name = "inner_t_of_elements", step = function() inner { t = g } end,
}
