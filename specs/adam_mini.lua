-- As the authors' package adam-mini 1.1.1. One second moment for each row of a matrix (an output
-- neuron or a token); for each matrix of a tensor tagged "heads" (queries and keys, split into
-- heads by the caller); for each element of vectors named *bias*; for each other tensor. Their code
-- finds the kinds of tensors by words in names, and takes one second moment for matrices whose
-- names it does not know; here these go by rows. It sets weight decay to 0 for biases
-- and norms: give these a group of their own.
-- f32 range: a row's v is infinite from a mean square of 3.4e38 on: its elements stand still.
local function step_by(second)
  p = shrink(p, lr * weight_decay)
  m = lerp(m, g, 1 - beta1)
  p = descend(p, { m, over = (1 / sqrt(1 - beta2 ^ t)) * sqrt(second) + eps }, lr / (1 - beta1 ^ t))
end

return optimizer {
  name  = "adam_mini",
  cite  = "Zhang et al. 2024, arXiv:2406.16793",
  use   = "In place of AdamW to halve the state of transformers: one second moment serves many " ..
          "weights",
  family = "small state", follows = "adam_mini.Adam_mini 1.1.1",
  doc   = "AdamW with one second moment for each row, head or tensor",
  hyper = {
    lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 },
  },
  state = { m = zeros, v = zeros, v_row = zeros "row", v_head = zeros "slice",
            v_tensor = zeros "tensor" },
  step = function()
    if named "*bias*" then
      v = beta2 * v + (1 - beta2) * g * g
      step_by(v)
    else
      v_tensor = beta2 * v_tensor + (1 - beta2) * mean(g * g)
      step_by(v_tensor)
    end
  end,
  matrix = function()
    if tagged "heads" then
      v_head = beta2 * v_head + (1 - beta2) * slice.mean(g * g)
      step_by(v_head)
    else
      v_row = beta2 * v_row + (1 - beta2) * rowmean(g * g)
      step_by(v_row)
    end
  end,
}
