-- expect: 6: 'n' has one value per group and cannot be assigned where the result of lt on line 6 (a truth value per tensor) decides
return optimizer {
  name  = "bad",
  state = { n = zeros "group" },
  step = function()
    when(lt(sum(g), 1), function() n = n + 1 end)
    p = p - n * g
  end,
}
