-- expect: 6: 'n' has one value per group and cannot be assigned in every(k, { stagger = true }, …), which runs at different steps for each tensor
return optimizer {
  name  = "bad",
  state = { n = zeros "group" },
  step = function()
    every(10, { stagger = true }, function() n = n + 1 end)
    p = p - g / (1 + n)
  end,
}
