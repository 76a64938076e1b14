-- expect: 1: the spec has no 'step' function
return optimizer {
  name = "bad",
  hyper = { lr = 0.1 },
}
