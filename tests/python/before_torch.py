"""Loads a wheel's library before torch: both work, with one libgomp if they can share it."""
import ctypes

import optc

x, g = ((ctypes.c_float * 100000)(*[1.0] * 100000) for _ in range(2))
optc.Engine().compile("adamw").bind([([{"param": x, "grad": g, "shape": (100000,)}], {})]).step()

import torch                                           # noqa: E402
import optc.torch                                      # noqa: E402

p = torch.ones(100000, requires_grad=True)
(p * p).sum().backward()
optc.torch.AdamW([p]).step()
assert torch.isfinite(p).all() and float(torch.ones(300, 300).mm(torch.ones(300, 300))[0, 0]) == 300
print("imported before torch %s, Python %d.%d" %
      (torch.__version__, *__import__("sys").version_info[:2]))
