-- expect: 2: Lua's own == and ~= cannot compare symbolic values
local function same(a, b) return a == b end
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    local alike = same(g, p)
    p = p - g
  end,
}
