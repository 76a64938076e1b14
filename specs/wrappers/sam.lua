-- One step: compute the gradient at p, run `perturb`, compute the gradient at the perturbed p, run
-- `step`. While `up` is 1, p is perturbed and `saved` holds the starting point of the step. A
-- tensor may miss either entry. Without a gradient in `perturb` it steps from its current p.
-- Without one in `step` it stays perturbed until its next entry, which starts from `saved`, even if
-- p was set meanwhile. If any gradient in `perturb` is not finite, no tensor is perturbed. With
-- skip, put sam outside (skip,sam): a skipped step then ends at `saved`. With sam,skip p stays
-- perturbed after a skipped step, until the next entry.
-- adaptive: ASAM as in davda54/sam 3c3afdb: gradients are scaled by |p| for the norm and by p^2 for
-- the perturbation.
local uphill = include "uphill"

return wrapper {
  name  = "sam",
  cite  = "Foret et al. 2021, arXiv:2010.01412; adaptive: Kwon et al. 2021, arXiv:2102.11600",
  use   = "When generalisation is worth two gradients at each step",
  family = "sharpness", follows = "optax.contrib.sam 0.2.8; adaptive: davda54/sam 3c3afdb",
  doc   = "Steps from the saved weights by the gradient taken rho uphill of them; entries " ..
          "perturb and step",
  args  = { "rho" },
  hyper = { rho = { 0.05, min = 0 }, eps = { 1e-12, min = 0 } },
  options = { adaptive = false },
  state = { saved = copy(p), up = zeros "tensor" },
  gradients = { "perturb", "step" },
  perturb = function()
    uphill.climb(g)
    up = 1
  end,
  step  = function()
    uphill.return_to_saved()
    up = 0
    inner()
  end,
}
