-- expect: 49: a rule that asks for sizes cannot step a projection
-- rule: soap
-- in: specs/soap.lua
-- with: project_sizes
return wrapper {
  name = "project_sizes", rank = 2, step = function() inner() end,
  matrix = function() p = p + mm(inner { g = mm(g, mm(g.T, normal "rows rank")) }, mm(g.T, normal "rows rank").T) end,
}
