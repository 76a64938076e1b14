-- The rule sees the sum of k gradients divided by k and counts one step for each k. A tensor without a gradient at a
-- step adds nothing; if it has none when the rule steps, its sum waits for the next time. Other steps read and write
-- only the sum, which state= does not narrow: it would lose small gradients.
-- With clip,accumulate the mean is clipped, with accumulate,clip each gradient.
return wrapper {
  name  = "accumulate",
  cite  = "Ott et al. 2018, arXiv:1806.00187",
  doc   = "Adds up the gradients of k steps and lets the rule step once with their mean",
  args  = { "k" },
  options = { k = 4 },
  state = { grads = zeros { type = "f32" }, made = zeros "tensor" },
  step  = function()
    grads = grads + g
    every(k, function()
      g = grads / k
      grads = 0
      made = made + 1
      inner { t = made }
    end)
  end,
}
