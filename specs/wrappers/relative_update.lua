-- As RelativeUpdateHook of NVIDIA's Emerging-Optimizers fd77292, also for other rules than Muon.
-- Weights that start as zeros stay zeros. Other tensors than matrices are stepped as without the
-- wrapper.
return wrapper {
  name  = "relative_update",
  cite  = "NVIDIA 2026, Emerging-Optimizers",
  use   = "When each matrix should move by a fixed share of its norm",
  family = "step", follows = "NVIDIA-NeMo/Emerging-Optimizers fd77292",
  doc   = "Scales the step of each matrix to lr times the norm of its weights; hyperball " ..
          "without the projection",
  hyper = { eps = { 1e-15, above = 0 } },
  step  = function() inner() end,
  matrix = function()
    local x, rate, amount = inner { apart = true }
    p = shrink(p, amount)
    local pn, xn = norm(p), norm(x)
    p = descend(p, x, rate * where(either(lt(pn, eps), lt(xn, eps)), 0, pn / max(xn, eps)))
  end,
}
