-- expect: 6: the rule inside keeps a ring, 'grads', and this block may skip it: say what its t is
-- rule: adashift
-- with: ring_skipped
return wrapper {
  name = "ring_skipped",
  step = function() when(lt(sum(g), 1), function() inner() end) end,
}
