-- As mechanize of optax 0.2.8. The authors' PyTorch code (optimizedlearning/mechanic 4a037bc) is
-- another one: its scales start at 0 and its largest product at 1e-6, and s_init is 1e-8. Choose lr
-- as 1 times a schedule: the wrapper learns its scale, the sum of six that forget at different
-- rates. x0: the first weights, from which all steps are measured. weight_decay is Mechanic's own,
-- beside that of the rule. Values are over all tensors of all groups.
local function learned(beta, h, m, v, r, s)
  local limited = clamp(h, -m, m)
  m = max(beta * m, abs(h) + eps)
  v = beta * beta * v + h * h
  r = beta * r + limited * s
  return m, v, r, (s_init / 6 * m + max(0, r)) / (sqrt(v) + eps)
end

return wrapper {
  name  = "mechanic",
  cite  = "Cutkosky, Defazio and Mehta 2023, arXiv:2306.00144",
  use   = "When the rate of a rule is unknown but its schedule is known",
  family = "no rate", follows = "optax.contrib.mechanize 0.2.8",
  doc   = "Learns the scale of any rule's steps from its gradients",
  args  = { "weight_decay", "s_init" },
  hyper = { weight_decay = { 1e-2, min = 0 }, s_init = { 1e-6, above = 0 },
            eps = { 1e-8, above = 0 } },
  state = {
    x0 = copy(p), m1 = zeros "group", v1 = zeros "group", r1 = zeros "group",
    s1 = fill(s_init, "group"),
    m2 = zeros "group", v2 = zeros "group", r2 = zeros "group", s2 = fill(s_init, "group"),
    m3 = zeros "group", v3 = zeros "group", r3 = zeros "group", s3 = fill(s_init, "group"),
    m4 = zeros "group", v4 = zeros "group", r4 = zeros "group", s4 = fill(s_init, "group"),
    m5 = zeros "group", v5 = zeros "group", r5 = zeros "group", s5 = fill(s_init, "group"),
    m6 = zeros "group", v6 = zeros "group", r6 = zeros "group", s6 = fill(s_init, "group"),
  },
  step  = function()
    local before, scale = p, s1 + s2 + s3 + s4 + s5 + s6
    local x = g + (weight_decay * scale * global.norm(g) / (global.norm(p) + eps)) * p
    local way = (x0 - p) / (scale + eps)
    local h = global.sum(x * way)
    inner()
    m1, v1, r1, s1 = learned(0.9, h, m1, v1, r1, s1)
    m2, v2, r2, s2 = learned(0.99, h, m2, v2, r2, s2)
    m3, v3, r3, s3 = learned(0.999, h, m3, v3, r3, s3)
    m4, v4, r4, s4 = learned(0.9999, h, m4, v4, r4, s4)
    m5, v5, r5, s5 = learned(0.99999, h, m5, v5, r5, s5)
    m6, v6, r6, s6 = learned(0.999999, h, m6, v6, r6, s6)
    p = x0 - (s1 + s2 + s3 + s4 + s5 + s6) * (way - (p - before))
  end,
}
