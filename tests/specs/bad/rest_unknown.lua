-- expect: 4: step = rule "adamww": there is no optimizer 'adamww' in the library; did you mean 'adamw'
return optimizer {
  name   = "bad",
  step   = rule "adamww",
  matrix = function() p = p - g end,
}
