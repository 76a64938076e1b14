-- As records 9 and 46 of modded-nanogpt f411b3d (track 3), also for other rules than Muon. Both
-- leave weight decay out: set it to 0. With decay the norm is that of the decayed weights. rows:
-- for each row alone, in record 46 with target 0.3825 and hyperball's projection. Other tensors
-- than matrices are stepped as without the wrapper.
return wrapper {
  name  = "uw_floor",
  cite  = "modded-nanogpt, track 3, 2026",
  use   = "With Muon in place of weight decay, so that matrices keep moving while their norms grow",
  family = "step", follows = "KellerJordan/modded-nanogpt f411b3d",
  doc   = "Scales up steps of matrices that are shorter than lr times a share of their weights' " ..
          "norm",
  args  = { "target" },
  hyper = { target = { 0.35, min = 0 }, eps = { 1e-8, above = 0 } },
  options = { rows = false },
  step  = function() inner() end,
  matrix = function()
    local x, rate, amount = inner { apart = true }
    p = shrink(p, amount)
    local pn, xn = norm(p), norm(x)
    if rows then pn, xn = rownorm(p), rownorm(x) end
    p = descend(p, x, rate * max(1, target * max(pn, eps) / max(xn, eps)))
  end,
}
