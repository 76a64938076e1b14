-- expect: 4: a spec has no field 'sate'; did you mean 'state'
return optimizer {
  name  = "bad",
  sate = { m = zeros },
  step = function()
    p = p - g
  end,
}
