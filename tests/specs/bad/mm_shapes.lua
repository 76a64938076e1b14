-- expect: 6: mm: rows x cols times rows x cols does not fit: 'g' (a value per elem) and 'g' (a value per elem); a.T is the transpose
return optimizer {
  name  = "bad",
  step = function() p = p - g end,
  matrix = function()
    local x = mm(g, g)
    p = p - mm(x, g)
  end,
}
