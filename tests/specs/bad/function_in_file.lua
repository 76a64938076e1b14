-- expect: 2: 'helper' is assigned outside an entry: use 'local'
function helper() p = p - g end
return optimizer {
  name  = "bad",
  hyper = { lr = 0.1 },
  step = function()
    helper()
  end,
}
