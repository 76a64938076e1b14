-- expect: 2: a string has a zero byte
return optimizer { name = "x\u{000}", state = { m = zeros "elem\000x" }, step = function() m = g p = p - m end }
