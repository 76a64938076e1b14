-- The perturbation of SAM: p moves by rho along `uphill`, in the norm over all tensors. While `up`
-- is 1, p is perturbed and `saved` holds the starting point of the step. If any gradient is not
-- finite, no tensor is perturbed. adaptive: ASAM, gradients are scaled by |p| for the norm and by
-- p^2 for the perturbation. The spec declares saved, up, rho, eps, adaptive; and first for
-- climb_and_keep.
local move = {}

function move.climb(uphill)
  saved = where(gt(up, 0), saved, p)
  local size = global.norm(uphill)
  if adaptive then size, uphill = global.norm(saved * uphill), saved * saved * uphill end
  p = where(isfinite(size), saved + (rho / (size + eps)) * uphill, saved)
  return size
end

-- As climb along g, and keeps the gradient; one that is not finite is not used.
function move.climb_and_keep()
  local size = move.climb(g)
  first, up = g, where(isfinite(size), 1, 0)
end

function move.return_to_saved() p = where(gt(up, 0), saved, p) end

return move
