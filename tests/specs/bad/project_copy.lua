-- expect: 23: 'x0' starts as p, which a projection does not have ('madgrad' inside of 'project_copy'): leave out the wrapper
-- rule: madgrad
-- in: specs/madgrad.lua
-- with: project_copy
return wrapper {
  name = "project_copy", rank = 2, step = function() inner() end,
  matrix = function() p = p + mm(inner { g = mm(g, mm(g.T, normal "rows rank")) }, mm(g.T, normal "rows rank").T) end,
}
