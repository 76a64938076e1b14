-- expect: 4: 'vectors' lets the 'matrix' of a rule step tensors of one dimension too: there is no 'matrix'
return optimizer {
  name  = "bad",
  vectors = true,
  step = function() p = p - g end,
}
