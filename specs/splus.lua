local function basis(A, last) return select(2, eigh(A, { last = last })) end

-- Puts the average into p and the weights into avg, or back.
local function to_average(if_it_is)
  p, avg = where(if_it_is, where(gt(seen, 0), avg / seen, p), p), where(if_it_is, p, avg)
end
local function to_weights(if_it_is)
  p, avg = where(if_it_is, avg, p), where(if_it_is, seen * p, avg)
end

local function taken(size, u)
  p = descend(p, u, size)
  avg, seen = lerp(p, avg, ema_rate), lerp(1, seen, ema_rate)
  p = shrink(p, size * weight_decay)
end

-- Tensors of three and more dimensions are viewed as dim 0 x the rest. The authors step them by
-- signs at lr * other_scale; bind them with OPTC_AS_VECTOR for that.
-- limit: 10000 in the authors' code. A basis of 8580 needs 2.4 GB of workspace, more than the
-- default on a CPU and most GPUs: binding would be refused. limit=10000 with enough workspace is
-- the authors' rule. Longer sides have no basis.
-- products: f32. Only signs are taken in the basis, but rounding errors in the Gram matrices rotate
-- the basis itself.
-- `to_eval` and `to_train`: twice changes nothing. A step returns to the weights first; its
-- gradient must belong to them.
-- f32 range: Gram matrices must stay under 3.4e38, so |g| under 1.8e19 / sqrt(longer side). Beyond
-- it no basis can be made, and the last one stays. Gram matrices under 1e-45 are 0: the basis is
-- then arbitrary.
return optimizer {
  name  = "splus",
  cite  = "Frans et al. 2025, arXiv:2506.07254",
  use   = "In place of Shampoo or SOAP when bases are renewed rarely and steps must stay stable",
  family = "shampoo", follows = "kvfrans/splus d96bd16",
  doc   = "Signs of momentum in the eigenvectors of gradients' Gram matrices; " ..
          "to_eval puts averaged weights in p, to_train takes them out",
  hyper = {
    lr = { 0.1, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
    beta2 = { 0.999, min = 0, below = 1 },
    ema_rate = { 0.999, min = 0, below = 1 }, weight_decay = { 0.01, min = 0 },
    other_scale = { 1e-3, min = 0 },
  },
  -- interval: steps between two bases. stagger: after step 1 each matrix has its own step of an
  -- interval
  options = { interval = 100, limit = 4096, stagger = false },
  products = "f32",
  state = { m = zeros, avg = zeros, seen = zeros "tensor", exchanged = zeros "tensor",
            L = zeros "rows", R = zeros "cols", X = eye(1, "rows"), Y = eye(1, "cols") },
  step  = function()
    to_weights(gt(exchanged, 0))
    exchanged = 0
    m = lerp(m, g, 1 - beta1)
    taken(lr * other_scale, sign(m))
  end,
  matrix = function()
    to_weights(gt(exchanged, 0))
    exchanged = 0
    local small, narrow = nrows <= limit, ncols <= limit
    local size = lr * other_scale
    if small and narrow then size = lr * 2 / (nrows + ncols) end
    m = lerp(m, g, 1 - beta1)
    local u = m
    if small then u, L = mm(X.T, u), lerp(L, gram(g), 1 - beta2) end
    if narrow then u, R = mm(u, Y), lerp(R, gram(g.T), 1 - beta2) end
    u = sign(u)
    if small then u = mm(X, u) end
    if narrow then u = mm(u, Y.T) end
    -- the two sides of a matrix have different steps
    local at = { first = true, stagger = stagger }
    if small then every(interval, at, function() X = basis(L, X) end) end
    if narrow then every(interval, at, function() Y = basis(R, Y) end) end
    taken(size, u)
  end,
  to_eval = function()
    to_average(eq(exchanged, 0))
    exchanged = 1
  end,
  to_train = function()
    to_weights(gt(exchanged, 0))
    exchanged = 0
  end,
}
