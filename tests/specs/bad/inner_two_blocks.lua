-- expect: 5: inner() inside two blocks of every(): say what its t is
-- rule: sgd
-- with: inner_two_blocks
return wrapper {
  name = "inner_two_blocks", step = function() every(2, function() every(3, function() inner() end) end) end,
}
