-- expect: 1: the spec must return optimizer
local rule = optimizer { name = "bad", step = function() p = p - g end }
