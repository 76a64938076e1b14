-- expect: 1: the spec must return optimizer
return { name = "bad", step = function() p = p - g end }
