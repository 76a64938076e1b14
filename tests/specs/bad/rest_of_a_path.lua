-- expect: 4: rule takes the name of a rule of the library: step = rule "adamw"
return optimizer {
  name   = "bad",
  step   = rule "../specs/adamw.lua",
  matrix = function() p = p - g end,
}
