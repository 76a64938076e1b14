"""A first spec, written inline, compared with AdamW on a small transformer."""
import optc.torch
import torch
from small import fresh, train

MINE = """return optimizer {
  name  = "mine",
  doc   = "The sign of momentum, and decay kept apart: every weight moves by lr",
  hyper = { lr = { 1e-3, min = 0 }, beta1 = { 0.9, min = 0, below = 1 },
            beta2 = { 0.98, min = 0, below = 1 }, weight_decay = { 0, min = 0 } },
  state = { m = zeros },
  step = function()
    local u = sign(lerp(g, m, beta1))
    m = lerp(g, m, beta2)
    p = p - lr * (u + weight_decay * p)
  end,
}"""

STEPS = 300
for name, make in {
        "torch.optim.AdamW": lambda n: torch.optim.AdamW(n.parameters(), lr=3e-3),
        "optc.torch.AdamW": lambda n: optc.torch.AdamW(n.parameters(), lr=3e-3),
        "mine": lambda n: optc.torch.Optimizer(n.parameters(), "mine", spec=MINE, lr=1e-3),
        "mine, clipped": lambda n: optc.torch.Optimizer(n.parameters(), "mine", spec=MINE, lr=1e-3,
                                                        with_=["clip(1)"]),
}.items():
    net = fresh()
    opt = make(net)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
    losses = train(net, opt, STEPS, schedule)
    print("%-18s %.3f -> %.3f" % (name, losses[0], sum(losses[-20:]) / 20))
