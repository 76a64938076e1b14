-- expect: 7: hyper' has over 128 entries
local many = {}
for i = 1, 200 do many["h" .. i] = i end

return optimizer {
  name  = "bad",
  hyper = many,
  step = function()
    p = p - g
  end,
}
