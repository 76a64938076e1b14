-- expect: 5: inner { g = … } takes values over rank and rows or cols, such as mm(P.T, g), not 'g'
-- rule: sgd
-- with: project_elements
return wrapper {
  name = "project_elements", step = function() inner { g = g } end,
}
