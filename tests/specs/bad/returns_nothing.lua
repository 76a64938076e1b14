-- expect: 1: the spec must return optimizer { … } or wrapper { … }, and returns nothing
local rule = optimizer { name = "bad", step = function() p = p - g end }
