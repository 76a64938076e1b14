-- expect: 1: must return optimizer
-- expect: 1: not a function
return function() p = p - g end
