-- expect: 3: shrink takes p, an amount and perhaps the word "factor"
return optimizer { name = "x", hyper = { lr = 1 }, step = function()
  p = shrink(p, lr, "scale")
end }
