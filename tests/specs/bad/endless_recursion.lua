-- expect: 0: too much memory
local function down(x)
  return 1 + down(x)
end
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    down(g)
  end,
}
