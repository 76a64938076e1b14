-- expect: 5: 'separable_both' reads p after the step, but the wrapper 'cautious_decay'
-- rule: adamw
-- with: separable_both,cautious_decay
return wrapper { name = "separable_both", step = function()
  if separable() then local x, rate, amount = inner { apart = true }  p = p - rate * x else inner()  p = 2 * p end
end }
