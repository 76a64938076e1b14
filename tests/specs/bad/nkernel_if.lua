-- expect: 3: Lua's 'if' cannot test 'nkernel', a symbolic value
return optimizer { name = "x", hyper = { lr = 1 }, step = function()
  if nkernel > 1 then p = p - lr * g else p = p - g end
end }
