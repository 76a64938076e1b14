-- expect: 4: 'step' must be a function
return optimizer {
  name = "bad",
  step = 1,
}
