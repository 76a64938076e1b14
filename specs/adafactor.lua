-- The update clipped to an RMS of clip_threshold, at the paper's rate unless the options say
-- otherwise.
local function apply(u)
  local rate = lr
  if relative_step then rate = min(lr, 1 / sqrt(t)) end
  if scale_parameter then rate = rate * max(eps2, rms(p)) end
  local base = rate
  if torch then base = lr end
  if momentum then m = lerp(m, (rate / max(1, rms(u) / clip_threshold)) * u, 1 - beta1) end
  p = shrink(p, base * weight_decay)
  if momentum then p = p - m else p = descend(p, u, rate / max(1, rms(u) / clip_threshold)) end
end

local function square() if torch then return g * g else return g * g + eps1 end end

-- f32 range: sums of g^2 along a row or a column must stay under 3.4e38, so |g| under 1.8e19 /
-- sqrt(length); for vectors |g| under 1.8e19. Beyond it second moments are infinite and the tensor
-- becomes NaN, at this step or the next one. torch=true multiplies the roots of row and column
-- moments: torch multiplies the moments, whose product is infinite from |g| = 4.3e9 on and makes
-- its updates 0. Small gradients stay in range: eps1 outweighs their squares; with torch=true it
-- outweighs |g| itself, and eps1 under 1e-19 lets squares under 1e-38 lose digits. out_of_range
-- (optc_read_value) of a tensor is 1 at steps whose update or, for vectors, second moment is not
-- finite. A column that leaves the range while all rows stay inside is reported at the next step.
return optimizer {
  name  = "adafactor",
  cite  = "Shazeer and Stern 2018, arXiv:1804.04235",
  use   = "For large models when Adam's states do not fit; it stores one value per row and column",
  family = "small state",
  follows = "timm.optim.Adafactor 1.0.30; with torch=true torch.optim.Adafactor 2.13.0",
  doc   = "Second moments of matrices kept as row and column means; lr caps a rate relative to " ..
          "the size of the weights",
  view  = "last",
  hyper = {
    lr = { 1e-2, min = 0 }, beta1 = { 0.9, min = 0, below = 1 }, decay = { 0.8, min = 0 },
    eps1 = { 1e-30, min = 0 }, eps2 = { 1e-3, min = 0 }, clip_threshold = { 1, above = 0 },
    weight_decay = { 0, min = 0 },
  },
  -- torch: as torch.optim.Adafactor, with eps1 in the denominators and decay by lr alone
  options = { relative_step = true, scale_parameter = true, momentum = false, torch = false },
  state = { m = zeros, v = zeros, r = zeros "row", c = zeros "col" },
  values = { out_of_range = "tensor" },
  step = function()
    v = lerp(v, square(), t ^ -decay)
    if torch then apply(g / max(sqrt(v), eps1)) else apply(g / sqrt(v)) end
    -- without elements the maximum is -inf
    out_of_range = where(isfinite(max(0, max(v))), 0, 1)
  end,
  matrix = function()
    local w, sq = t ^ -decay, square()
    r = lerp(r, rowmean(sq), w)
    c = lerp(c, colmean(sq), w)
    local u = g * rsqrt(r / slice.mean(r)) * rsqrt(c)
    if torch then u = g * min(rsqrt(r / max(slice.mean(r), eps1)) * rsqrt(c), 1 / eps1) end
    out_of_range = min(numel, where(isfinite(rms(u)), 0, 1))      -- 0 without elements
    apply(u)
  end,
}
