-- expect: 19: only entries beside step write the state 'h', and they see no projection of the gradient ('sophia' inside of 'project_entry')
-- rule: sophia
-- in: specs/sophia.lua
-- with: project_entry
return wrapper {
  name = "project_entry", rank = 2, step = function() inner() end,
  matrix = function() p = p + mm(inner { g = mm(g, mm(g.T, normal "rows rank")) }, mm(g.T, normal "rows rank").T) end,
}
