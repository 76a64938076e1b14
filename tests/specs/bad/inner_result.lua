-- expect: 8: inner(), step(), every() and when() give no value: they change p and the states
-- expect: 8: local before = p  inner()  local d = p - before
-- rule: sgd
-- with: inner_result
return wrapper {
  name = "inner_result", step = function()
    local d = inner()
    p = p - 0.5 * d
  end,
}
