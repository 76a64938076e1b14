-- A weight that is nearly orthogonal to its gradient, in each row or as a whole, counts as
-- scale-invariant. Returns the factor of p in the update's component along such a weight (0 for
-- others), and both answers. Cosines are divided by one norm after the other, since their product
-- may overflow; if the sum of p * g does, the weight counts as not orthogonal. The spec declares
-- hyper eps and delta.
return function(u)
  local pr, pn = rownorm(p), norm(p)
  local cos_row = rowdot(p, g) / max(pr, eps) / max(rownorm(g), eps)
  local cos_all = dot(p, g) / max(pn, eps) / max(norm(g), eps)
  local by_row = lt(max(abs(cos_row)), delta / sqrt(ncols))
  local by_all = lt(abs(cos_all), delta / sqrt(numel))
  local radial = where(by_row, rowdot(p, u) / (pr + eps) / (pr + eps),
                 where(by_all, dot(p, u) / (pn + eps) / (pn + eps), 0))
  return radial, by_row, by_all
end
