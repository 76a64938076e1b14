-- expect: 50: 'r' has one value per row: a rule that steps a projection keeps values by element, tensor and group
-- rule: adafactor
-- in: specs/adafactor.lua
-- with: project_rows
return wrapper {
  name = "project_rows", rank = 2, step = function() inner() end,
  matrix = function() p = p + mm(inner { g = mm(g, mm(g.T, normal "rows rank")) }, mm(g.T, normal "rows rank").T) end,
}
