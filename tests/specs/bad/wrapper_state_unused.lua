-- expect: 6: state 'wrapper_state_unused.m' is never used
-- rule: lion
-- with: wrapper_state_unused
return wrapper {
  name  = "bad",
  state = { m = zeros },
  step = function()
    inner()
  end,
}
