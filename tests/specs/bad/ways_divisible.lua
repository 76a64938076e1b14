-- expect: 6: divisible takes a size and a whole number from 1
-- expect: 7: divisible takes a size and a whole number from 1
-- expect: 8: dims takes a number of dimensions from 1
return optimizer {
  name = "bad", step = function()
    if divisible(4, nrows) then p = p - g end
    if divisible(nrows, 2.5) then p = p - g end
    if dims("four") then p = p - g end
    p = p - g
  end,
}
