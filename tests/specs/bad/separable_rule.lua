-- expect: 3: separable() is for entries of wrappers
return optimizer { name = "x", hyper = { lr = 1 }, step = function()
  if separable() then p = p - lr * g else p = p - g end
end }
