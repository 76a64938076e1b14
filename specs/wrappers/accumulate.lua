-- The rule sees the mean of the gradients that were added since its last step, and of its scalar
-- inputs (loss), and counts one step for each k. A tensor without a gradient at a step adds 0 to
-- its mean; if it has none when the rule steps, its sum waits for the next time.
-- A step that an outer wrapper skips (accumulate(4),skip) adds nothing, and the mean is taken over
-- the others. If the rule's own step is skipped, the sum stays, and the rule steps k steps later
-- with the mean of all of them. Other steps read and write only the sum, which state= does not
-- narrow: it would lose small gradients. With clip,accumulate the mean is clipped, with
-- accumulate,clip each gradient.
return wrapper {
  name  = "accumulate",
  cite  = "Ott et al. 2018, arXiv:1806.00187",
  use   = "When the wanted batch does not fit in memory at once",
  family = "gradient", follows = "torch.optim.AdamW 2.13.0 with the mean of k gradients",
  doc   = "Adds up the gradients of k steps and lets the rule step once with their mean",
  args  = { "k" },
  options = { k = 4 },
  state = { grads = zeros { type = "f32" }, added = zeros "group", made = zeros "tensor" },
  step  = function()
    add_inputs()
    grads = grads + g
    added = added + 1
    every(k, function()
      g = grads / added
      made = made + 1
      inner { t = made, mean = added }
      grads, added = 0, 0
    end)
  end,
}
