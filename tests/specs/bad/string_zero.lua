-- expect: 3: a string has a zero byte; leave it out
local escaped, long = "\\0 \1 \x01 \u{10}", [[\0]]
return optimizer { name = "x", options = { how = { "a", "b\x00c" } }, step = function() p = p - g end }
