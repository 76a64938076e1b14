-- expect: 5: inner takes no argument, or a table with t and g for the inner rule
-- rule: sgd
-- with: inner_argument
return wrapper {
  name = "inner_argument", step = function() inner(3) end,
}
