-- expect: 5: inner { mean = … } takes the number of steps that add_inputs() has added, one per group, not 'g'
-- rule: sgd
-- with: inner_mean_of_elements
return wrapper {
  name = "inner_mean_of_elements", step = function() inner { mean = g } end,
}
