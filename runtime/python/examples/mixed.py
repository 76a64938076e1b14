"""Mixed precision. First: forward and backward in 16 bits under autocast, weights in f32, and a
scaler whose check and unscaling are part of the step. Then: everything in bf16 with f32 states."""
import optc.torch
import torch
from small import fresh, loss_of, train

device = "cuda" if torch.cuda.is_available() else "cpu"
steps = 200 if device == "cuda" else 40                # many CPUs have no arithmetic in bf16
net = fresh(device)
opt = optc.torch.AdamW(net.parameters(), lr=3e-3, with_=["clip(1)"])
scaler = optc.torch.GradScaler(device, init_scale=2.0 ** 10)
for step in range(steps):
    opt.zero_grad()
    with torch.autocast(device, torch.float16 if device == "cuda" else torch.bfloat16):
        loss = loss_of(net, step, device)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print("autocast: %.3f, gradients' norm %.3f, scale %g" %
      (loss.item(), opt.value("clip.grad_norm"), scaler.get_scale()))

net = fresh(device).to(torch.bfloat16)
opt = optc.torch.AdamW(net.parameters(), lr=3e-3)
print("bf16: %.3f, states in %s" % (train(net, opt, steps, device=device)[-1],
                                    opt.state[net.wte.weight]["exp_avg"].dtype))
