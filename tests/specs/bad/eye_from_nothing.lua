-- expect: 4: state 'L' starts from 'epz', which is no hyperparameter and no option that is a number; did you mean 'eps'?
return optimizer {
  name  = "bad", hyper = { eps = 1 },
  state = { L = eye(epz, "rows") },
  step = function() L = L + eps p = p - g end,
}
