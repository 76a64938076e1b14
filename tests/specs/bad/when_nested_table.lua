-- expect: 8: when() changes a field of the table 'parts'
-- expect: 9: every() changes a field of the table 'parts'
return optimizer {
  name  = "bad",
  step = function()
    local parts = { of = { x = g } }
    local function keep(x) parts.of.y = x end
    when(gt(t, 5), function() parts.of.x = 2 * g end)
    every(3, function() keep(g) end)
    p = p - parts.of.x - parts.of.y
  end,
}
