-- expect: 4: 'inner' is not declared
-- rule: sgd
-- with: inner_in_file
inner()
return wrapper { name = "bad", step = function() inner() end }
