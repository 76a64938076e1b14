-- expect: 7: the rule asks different questions about a tensor at the same place
local n = 0
return optimizer {
  name = "bad",
  step = function()
    n = n + 1
    local big = n % 2 == 1 and numel <= 4 or n % 2 == 0 and named "x"
    if big then p = p - g else p = p + g end
  end,
}
