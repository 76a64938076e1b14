"""Muon for the matrices of a transformer, AdamW for embeddings, heads and vectors. The modules
decide."""
import optc.torch
from small import fresh, train

net = fresh()
opt = optc.torch.Muon(net, lr=0.02, adamw_lr=3e-3)
for name, part in optc.torch.sorted_by(opt).items():
    print("%-16s %s" % (name, part))
losses = train(net, opt, 150)
print("%.3f -> %.3f" % (losses[0], sum(losses[-20:]) / 20))

# which matrices go where can be said: all of them to Muon here, and q, k and v each by itself
net = fresh()
opt = optc.torch.Muon(net, lr=0.02, adamw_lr=3e-3, sort=lambda name, p: p.dim() > 1,
                      split=lambda name, p: 3 if name.endswith("qkv.weight") else 0)
losses = train(net, opt, 150)
print("%.3f -> %.3f, embeddings too, q k v apart" % (losses[0], sum(losses[-20:]) / 20))
