-- expect: 2: hyperparameter 'nkernel' takes a name the language uses itself
return optimizer { name = "x", hyper = { nkernel = 1 }, step = function() p = p - g end }
