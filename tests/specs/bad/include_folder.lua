-- expect: 2: include takes the name of a shared text, without folder and .lua
local x = include "../uphill"
return optimizer { name = "x", step = function() p = p - g end }
