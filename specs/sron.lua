-- A transcription of the formulas: the authors' code is only in the supplement of their submission,
-- and no other implementation was found (November 2026). With alpha = 1 and eps near 0 the code of
-- scale's authors gives the same steps. The defaults of lr and alpha are ours, those of sinkgd.
-- Weight decay is ours too.
return optimizer {
  name  = "sron",
  cite  = "Wen et al. 2025, openreview.net/forum?id=BtQLBWr6zI",
  use   = "To pre-train language models with no state for matrices and no products",
  family = "small state",
  follows = "the formulas, transcribed; with alpha = 1 the code of scale's authors",
  doc   = "SGD with rows of gradients divided by their root mean squares; no state. AdamW for " ..
          "what is no matrix",
  hyper = {
    lr = { 1e-3, min = 0 }, alpha = { 0.05, above = 0 }, eps = { 1e-8, above = 0 },
    weight_decay = { 0, min = 0 },
  },
  step  = rule "adamw",
  matrix = function()
    p = shrink(p, lr * weight_decay)
    p = descend(p, g / (rownorm(g) / sqrt(ncols) + eps), lr * alpha)
  end,
}
