-- expect: 6: rule is for the head of a spec: step = rule "adamw"
return optimizer {
  name   = "bad",
  step   = function() p = p - g end,
  matrix = function()
    local x = rule "adamw"
    p = p - g
  end,
}
