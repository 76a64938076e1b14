-- The largest directions of a gradient matrix, found anew at steps 1, interval + 1, … The spec
-- declares the options interval and apart ("auto", "true", "false"), rank, the states P ("rows
-- rank") and Q ("cols rank"), and hyper decay. Gram matrices are in f64: squares in f32 lose the
-- directions below 1e-3 of the largest, which the authors' SVD keeps.
local low, exact = {}, { products = "f64" }

-- A multiple of g whose squares stay in range; the directions are the same.
local function unit() return g / max(slice.norm(g), 1e-37) end

function low.apart()
  if apart == "auto" then return separable() end
  return apart == "true"
end

-- Of a matrix with more columns than rows.
function low.of_rows()
  local _
  every(interval, { offset = 1 }, function()
    _, P = eigh(gram(unit(), exact), "rank", { last = P })
  end)
end

-- Of any other matrix.
function low.of_cols()
  local _
  every(interval, { offset = 1 }, function()
    _, Q = eigh(gram(unit().T, exact), "rank", { last = Q })
  end)
end

-- The step of a tensor that is no matrix.
function low.whole()
  if low.apart() then
    local x, rate, amount = inner { apart = true }
    p = shrink(descend(p, x, rate), amount + decay)
  else
    inner()
    p = p - decay * p
  end
end

return low
