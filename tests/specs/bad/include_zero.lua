-- expect: 2: a string has a zero byte; leave it out
local uphill = include "uphill\0x"
return optimizer { name = "x", step = function() p = p - g end }
