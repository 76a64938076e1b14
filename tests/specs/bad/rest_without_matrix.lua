-- expect: 4: step = rule "adamw" steps what is no matrix: the matrices need 'matrix', a function
return optimizer {
  name   = "bad",
  step   = rule "adamw",
}
