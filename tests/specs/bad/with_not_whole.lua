-- expect: 11: option 'k' is a whole number, not '2.5'
-- with: lookahead(2.5)
-- in: specs/wrappers/lookahead.lua
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = p - lr * g
  end,
}
