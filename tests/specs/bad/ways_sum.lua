-- expect: 5: Lua's own < and > cannot compare symbolic values
return optimizer {
  name = "bad",
  step = function()
    local x = nrows + 1 > ncols
    p = p - g
  end,
}
