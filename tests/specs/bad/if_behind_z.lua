-- expect: 7: Lua's 'if' cannot test 't'
return optimizer {
  name = "bad", doc = "a string that goes on \z
     over lines' and [[ has what looks \
     like code in it",
  step = function()
    if t == 1 then p = p - g end
    p = p - g
  end,
}
