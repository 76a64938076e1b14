-- expect: 3: 'nkernel' is not declared
return optimizer { name = "x", hyper = { lr = 1 }, step = function()
  nkernel = 3
  p = p - lr * g
end }
