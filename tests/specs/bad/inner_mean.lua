-- expect: 6: inner { mean = … }: nothing has added up the input 'inner_mean.x': call add_inputs()
-- rule: sgd
-- with: inner_mean,inner_mean2
return wrapper {
  name = "inner_mean", inputs = { x = "group" }, step = function()
    g = g * x inner { mean = 4 }
  end,
}
