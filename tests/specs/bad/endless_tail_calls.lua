-- expect: 3: runs too long
local function down(x)
  return down(x)
end
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    down(g)
  end,
}
