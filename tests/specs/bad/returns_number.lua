-- expect: 1: must return optimizer
-- expect: 1: not a number
return 42
