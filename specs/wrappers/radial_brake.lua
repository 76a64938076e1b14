-- As RadialBrakeHook of NVIDIA's Emerging-Optimizers fd77292, also for other rules than Muon. The
-- step is made from the decayed weights. Other tensors than matrices are stepped as without the
-- wrapper.
return wrapper {
  name  = "radial_brake",
  cite  = "modded-nanogpt, track 3, 2026; NVIDIA Emerging-Optimizers",
  use   = "With Muon when norms of matrices grow too fast",
  family = "step", follows = "NVIDIA-NeMo/Emerging-Optimizers fd77292",
  doc   = "Keeps a share of each change of a matrix's norm: by default half of its growth",
  args  = { "outward_scale", "inward_scale" },
  hyper = {
    outward_scale = { 0.5, min = 0, max = 1 }, inward_scale = { 1, min = 0, max = 1 },
    eps = { 1e-15, above = 0 },
  },
  step  = function() inner() end,
  matrix = function()
    local x, rate, amount = inner { apart = true }
    local start = shrink(p, amount)
    local moved = start - rate * x
    local was, now = norm(start), norm(moved)
    was, now = where(lt(was, eps), 0, was), where(lt(now, eps), 0, now)
    local grown = now - was
    local share = where(ge(grown, eps), outward_scale, where(le(grown, -eps), inward_scale, 0))
    p = where(gt(now, 0), (was + share * grown) / max(now, eps), 0) * moved
  end,
}
