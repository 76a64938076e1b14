-- expect: 3: 'lrr' is not declared; did you mean 'lr'
local function down(x)
  p = p - lrr * x
end

return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    down(g)
  end,
}
