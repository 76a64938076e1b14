-- expect: 5: all variants of a rule must make the same global reductions in the same order
return optimizer {
  name = "bad",
  step = function()
    if numel <= 8 then p = p - g else p = p - g / global.norm(g) end
  end,
}
