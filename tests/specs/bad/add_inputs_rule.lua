-- expect: 3: add_inputs() is for entries of wrappers: it adds up the scalar inputs of the rule inside
return optimizer { name = "x", hyper = { lr = 1 }, inputs = { loss = "group" }, step = function()
  add_inputs()
  p = p - lr * loss * g
end }
