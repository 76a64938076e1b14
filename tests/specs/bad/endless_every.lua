-- expect: 3: overflow
local function down()
  every(2, down)
end
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    down()
  end,
}
