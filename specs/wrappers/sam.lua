-- One step: gradient at p, `perturb`, gradient at the perturbed p, `step`.
-- While `up` is 1, p is uphill and `saved` is where the step will start. A tensor may be left out of either entry:
-- without a gradient in `perturb` it steps from where it is; without one in `step` it stays uphill until the next entry
-- it takes part in, which starts from `saved` (and not from a p that was set meanwhile). Where any gradient of
-- `perturb` is not finite, no tensor goes uphill.
-- With skip put sam outside, as in skip,sam: a step that is left out then ends at `saved`. In sam,skip p stays uphill
-- after it, until the next entry.
return wrapper {
  name  = "sam",
  cite  = "Foret et al. 2021, arXiv:2010.01412",
  doc   = "Steps from the saved weights by the gradient taken rho uphill of them; entries perturb and step",
  args  = { "rho" },
  hyper = { rho = { 0.05, min = 0 }, eps = { 1e-12, min = 0 } },
  state = { saved = copy(p), up = zeros "tensor" },
  perturb = function()
    local size = global.norm(g)
    saved = where(gt(up, 0), saved, p)
    p = where(isfinite(size), saved + (rho / (size + eps)) * g, saved)
    up = 1
  end,
  step  = function()
    p = where(gt(up, 0), saved, p)
    up = 0
    inner()
  end,
}
