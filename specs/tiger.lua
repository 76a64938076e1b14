-- As pytorch_optimizer's Tiger: Lion with beta1 = beta2. The author's code (bojone/tiger,
-- TensorFlow 1) has this rule and also multiplies lr by the RMS of a matrix (of each row of
-- embeddings) and by 0.5 for vectors, which it does not decay. scale = "rms" does that; it is
-- checked against a transcription, since that code cannot be run today.
return optimizer {
  name  = "tiger",
  cite  = "Su 2023, kexue.fm/archives/9512, github.com/bojone/tiger",
  use   = "In place of Lion when one beta is enough",
  family = "sign",
  follows = "pytorch_optimizer.Tiger 4.1.0; with scale=rms bojone/tiger 43fb6b6, transcribed",
  doc   = "The sign of the momentum, with decoupled weight decay",
  hyper = { lr = { 1e-3, min = 0 }, beta = { 0.965, min = 0, below = 1 },
            weight_decay = { 0.01, min = 0 } },
  options = { scale = { "none", "rms" } },
  state = { m = zeros },
  step = function()
    m = lerp(m, g, 1 - beta)
    if scale == "rms" then
      p = descend(p, sign(m), 0.5 * lr)
    else
      p = shrink(p, lr * weight_decay)
      p = descend(p, sign(m), lr)
    end
  end,
  matrix = function()
    local rate = lr
    if scale == "rms" then
      if named "*embed*" then rate = lr * rowrms(p) else rate = lr * rms(p) end
    end
    m = lerp(m, g, 1 - beta)
    p = descend(p, sign(m), rate, weight_decay)
  end,
}
