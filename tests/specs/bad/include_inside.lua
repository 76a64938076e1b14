-- expect: 3: include is for the head of a spec: local shared = include "NAME"
return optimizer { name = "x", step = function()
  local x = include "uphill"
  p = p - g
end }
