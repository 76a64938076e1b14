-- expect: 8: the rule has over 8 variants
return optimizer {
  name = "bad",
  step = function()
    local n = 0
    for i = 1, 4 do if numel <= i then n = n + 1 end end
    if named "a" then n = n + 1 end
    if named "b" then n = n + 1 end
    p = p - n * g
  end,
}
