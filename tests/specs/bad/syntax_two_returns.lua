-- expect: 6: <eof> expected
return optimizer {
  name = "bad",
  step = function() p = p - g end,
}
return 1
