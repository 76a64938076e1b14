-- Steps towards the point of a norm ball that minimizes the inner product with the momentum (a
-- linear minimization oracle). With constrained = true the weights never leave the ball.
local function move(direction)
  if constrained then p = shrink(p, lr) end
  p = descend(p, direction, lr * scale)
end

-- momentum: the share of the new gradient, as in the authors' code: 1 is no momentum. Their recipe
-- for language models: lr 2^-12, momentum 0.1, scale 50 for matrices and 3000 for the head.
-- Kernels of convolutions are scaled by sqrt(out / in) / k^2, as in their code. k^2 is the number
-- of positions here, also of kernels that are not square.
-- steps = 0: the number of steps that the coefficients were published with (jordan: 5).
-- products: f16. The paper's analysis allows an oracle that is inexact by a factor; 11 bits give an
-- error of 1 %.
return optimizer {
  name  = "scion",
  cite  = "Pethick et al. 2025, arXiv:2502.07529",
  use   = "In place of Muon when one rate should transfer between model sizes",
  family = "muon", follows = "LIONS-EPFL/scion f58a393",
  doc   = "Conditional gradients: spectral norm for matrices, signs for those tagged head, RMS " ..
          "for the rest",
  hyper = {
    lr = { 1e-3, min = 0, max = 1 }, momentum = { 1, above = 0, max = 1 }, scale = { 1, above = 0 },
    eps = { 1e-8, min = 0 },
  },
  options = {
    constrained = true, steps = 0, form = { "plain", "gram", "auto" },
    coefficients = { "jordan", "polar_express", "cans", "turbo" },
  },
  products = "f16",
  state = { m = zeros },
  step = function()
    m = lerp(m, g, momentum)
    move(m / (rms(m) + eps))
  end,
  matrix = function()
    m = lerp(m, g, momentum)
    if tagged "head" then
      move(sign(m) / ncols)
    else
      local size = sqrt(nrows / (ncols / nkernel)) / nkernel
      move(size * polar(m, { steps = steps, coefficients = coefficients, form = form }))
    end
  end,
}
