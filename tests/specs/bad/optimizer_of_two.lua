-- expect: 2: optimizer takes one table
return optimizer({ name = "bad", step = function() p = p - g end }, {})
