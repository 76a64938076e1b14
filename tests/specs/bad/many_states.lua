-- expect: 7: over 64 states
local many = {}
for i = 1, 100 do many["s" .. i] = zeros end

return optimizer {
  name  = "bad",
  state = many,
  step = function()
    p = p - g
  end,
}
