-- expect: 11: 'adaptive' is not declared
-- in: specs/shared/uphill.lua
local uphill = include "uphill"
return optimizer {
  name = "x", hyper = { rho = 1, eps = 0 }, state = { saved = copy(p), up = zeros "tensor" },
  step = function() uphill.climb(g) end,
}
