-- expect: 6: both: argument 2 is the number 1; it must be a truth value
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    p = where(both(lt(g, 0), 1), p, g)
  end,
}
