-- expect: 2: include "uphil": there is no shared text 'uphil' in the library; did you mean 'uphill'
local x = include "uphil"
return optimizer { name = "x", step = function() p = p - g end }
