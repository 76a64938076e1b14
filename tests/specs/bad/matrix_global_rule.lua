-- expect: 4: this one has no partner in 'step', which is another rule: write 'step' out as a function that makes it too, or make it in a wrapper
return optimizer {
  name  = "bad",
  matrix = function() p = p - g / global.norm(g) end,
  step = rule "adamw",
}
