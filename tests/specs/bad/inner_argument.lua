-- expect: 5: inner takes nothing, or a table of what the rule inside calls t and g
-- rule: sgd
-- with: inner_argument
return wrapper {
  name = "inner_argument", step = function() inner(3) end,
}
