-- expect: 2: 'beta' is not declared
local b = beta + 1
return optimizer { name = "bad", step = function() p = p - b * g end }
