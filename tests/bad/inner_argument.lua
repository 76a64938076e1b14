-- expect: 5: inner takes nothing, or what the rule inside calls t
-- rule: sgd
-- with: inner_argument
return wrapper {
  name = "inner_argument", step = function() inner(3) end,
}
