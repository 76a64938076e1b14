-- The authors compute the polar factor to full precision (QDWH); eight steps of Polar Express come
-- near it. steps = 0: eight steps for polar_express, else the number that the coefficients were
-- published with.
-- products: f16 as in Muon; the nuclear norm <m, U> sums over all elements, so an error of 1 % in U
-- is 1 % of the step.
return optimizer {
  name  = "polargrad",
  cite  = "Lau, Long and Su 2025, arXiv:2505.21799",
  use   = "In place of Muon when the step should shrink with the gradient",
  family = "muon", follows = "timlautk/polargrad 79f3c6f",
  doc   = "The polar factor of the momentum times its nuclear norm: " ..
          "a step that shrinks with the gradient; AdamW for the rest",
  hyper = { lr = { 0.02, min = 0 }, weight_decay = { 0, min = 0 },
            momentum = { 0.95, min = 0, below = 1 } },
  options = { polar_first = false, steps = 0, form = { "plain", "gram", "auto" },
              coefficients = { "polar_express", "jordan", "cans", "turbo" } },
  products = "f16",
  state = { m = zeros },
  step  = rule "adamw",
  matrix = function()
    local how = { steps = steps, coefficients = coefficients, form = form }
    if steps == 0 and coefficients == "polar_express" then how.steps = 8 end
    local u, size
    if polar_first then                         -- momentum of the polar factors
      local o = polar(g, how)
      m = lerp(m, o, 1 - momentum)
      u, size = m, slice.dot(g, o)
    else
      m = lerp(m, g, 1 - momentum)
      u = polar(m, how)
      size = slice.dot(m, u)
    end
    p = descend(shrink(p, lr * weight_decay), u, lr * size)
  end,
}
