-- As GPAAdamW of the authors' code (facebookresearch/optimizers f606606) with its type GPA;
-- shared/schedulefree.lua has the entries to_eval and to_train. train_interp_coeff is the paper's
-- mu_y, eval_interp_coeff its mu_x. k counts the group's steps, also for the bias corrections of a
-- tensor that joins late.
-- f32 range: v is infinite from |g| = 5.8e20 on (sqrt(3.4e38 / (1 - beta2))): the element's z
-- stands still then.
local average = include "schedulefree"

return optimizer {
  name  = "gpa_adamw",
  cite  = "Smoothing DiLoCo with primal averaging, 2025, arXiv:2512.17131",
  use   = "In place of AdamW in long runs when averaged iterates should replace a schedule",
  family = "averaging", follows = "facebookresearch/optimizers f606606",
  doc   = "AdamW with primal averaging: gradients and evaluation at two means; entries to_eval " ..
          "and to_train",
  hyper = {
    lr = { 1, min = 0 }, beta1 = { 0.9, min = 0, below = 1 }, beta2 = { 0.999, min = 0, below = 1 },
    eps = { 1e-8, min = 0 }, weight_decay = { 0, min = 0 },
    train_interp_coeff = { 0.7, above = 0, max = 1 },
    eval_interp_coeff = { 0.9967, min = 0, max = 1 },
  },
  options = { use_wd_on_y = false },
  state = { z = copy(p), m = zeros, v = zeros, k = zeros "group", evaluated = zeros "tensor" },
  step = function()
    average.to_train(train_interp_coeff)
    k = k + 1
    m = lerp(m, g, 1 - beta1)
    v = beta2 * v + (1 - beta2) * g * g
    local d = (1 / (1 - beta1 ^ k)) * m / ((1 / sqrt(1 - beta2 ^ k)) * sqrt(v) + eps)
    if use_wd_on_y then p = p - (lr * weight_decay) * p else z = z - (lr * weight_decay) * z end
    p = lerp(p, z, 1 - eval_interp_coeff) - (lr * (1 - train_interp_coeff * eval_interp_coeff)) * d
    z = z - lr * d
  end,
  to_eval = function() average.to_eval(train_interp_coeff) end,
  to_train = function() average.to_train(train_interp_coeff) end,
}
