-- One step: gradient at p, `perturb`, gradient at the perturbed p, `step`.
return wrapper {
  name  = "sam",
  cite  = "Foret et al. 2021, arXiv:2010.01412",
  doc   = "Steps from the saved weights by the gradient taken rho uphill of them; entries perturb and step",
  args  = { "rho" },
  hyper = { rho = { 0.05, min = 0 }, eps = { 1e-12, min = 0 } },
  state = { saved = copy(p) },
  perturb = function()
    saved = p
    p = p + (rho / (global.norm(g) + eps)) * g
  end,
  step  = function()
    p = saved
    inner()
  end,
}
