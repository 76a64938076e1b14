-- One power iteration turns a basis Q towards the eigenvectors of a symmetric matrix A. If QR
-- fails, Q stays.
local iteration = {}

-- Sorts the directions first, by how much of A each sees. Returns them and that order.
function iteration.sorted(A, Q)
  local B = mm(A, Q)
  local order = sort(colsum(Q * B))
  return qr(take(B, order, "cols"), { last = Q }), order
end

-- Returns how much of A each new direction sees, and the directions, not sorted.
function iteration.measured(A, Q)
  local q = qr(mm(A, Q), { last = Q })
  return colsum(q * mm(A, q)), q
end

return iteration
