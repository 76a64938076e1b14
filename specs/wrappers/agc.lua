-- As timm's adaptive_clip_grad: a unit is a row of a matrix (an output neuron or channel), or a
-- whole vector. The authors' code is in JAX. They leave out the last layer: give it a group with
-- clip_factor = inf.
local function clip(pn, gn)
  local most = clip_factor * max(pn, eps)
  g = where(lt(gn, most), 1, most / max(gn, 1e-6)) * g
  inner()
end

return wrapper {
  name  = "agc",
  cite  = "Brock et al. 2021, arXiv:2102.06171",
  use   = "For networks without normalisation layers and for large batches",
  family = "gradient", follows = "timm.utils.adaptive_clip_grad 1.0.31",
  doc   = "Adaptive gradient clipping: each unit's gradient has at most clip_factor of the norm " ..
          "of its weights",
  args  = { "clip_factor" },
  hyper = { clip_factor = { 0.01, min = 0, max = inf }, eps = { 1e-3, above = 0 } },
  step  = function() clip(norm(p), norm(g)) end,
  matrix = function() clip(rownorm(p), rownorm(g)) end,
}
