-- expect: 13: polar knows steps, coefficients, form, safety and eps, not 'step'; did you mean 'steps'
-- expect: 14: polar: steps is a whole number from 0 to 30 (0: as many as the coefficients were published for), known when the rule is compiled, not 2.5
-- expect: 15: polar: steps is a whole number from 0 to 30
-- expect: 16: polar: coefficients are one of "jordan", "polar_express", "cans", "turbo", "quintic", "deepseekv4", "cubic5", "polar_express_5", "exact" or a list of triples, not "jordans"
-- expect: 17: polar: coefficients are triples of numbers, one a step
-- expect: 18: polar: coefficients are 1 to 8 triples, and this list has 0
-- expect: 19: polar: form is "plain", "gram" or "auto", not "grams"
-- expect: 20: polar: safety is a number from 1 to 2, not 0.9
return optimizer {
  name  = "bad", hyper = { n = 5 },
  step = function() p = p - g end,
  matrix = function()
    p = p - polar(g, { step = 5 })
    p = p - polar(g, { steps = 2.5 })
    p = p - polar(g, { steps = n })
    p = p - polar(g, { coefficients = "jordans" })
    p = p - polar(g, { coefficients = { { 1, 2 } } })
    p = p - polar(g, { coefficients = {} })
    p = p - polar(g, { form = "grams" })
    p = p - polar(g, { safety = 0.9 })
  end,
}
