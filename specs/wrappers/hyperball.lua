-- As AdamH and MuonH of modded-nanogpt f411b3d (track 3).
-- Matrices stay on the sphere of their first norm, and a step moves them by about lr times that
-- norm; the rule's weight decay is left out. Weights that start as zeros stay zeros. Other tensors
-- are stepped as without the wrapper.
return wrapper {
  name  = "hyperball",
  cite  = "Wen et al. 2026, arXiv:2606.16899",
  use   = "When matrices should keep their norm, so that no decay is tuned",
  family = "step", follows = "KellerJordan/modded-nanogpt f411b3d",
  doc   = "Keeps the norm of each matrix: steps by lr times its norm, then scales back to it",
  state = { radius = zeros "tensor" },
  step  = function() inner() end,
  matrix = function()
    local x, rate = inner { apart = true }
    radius = where(eq(t, 1), norm(p), radius)
    local moved = p - (rate * radius / max(norm(x), 1e-30)) * x
    p = (radius / max(norm(moved), 1e-30)) * moved
  end,
}
