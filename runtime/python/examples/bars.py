"""Images of bars, and a small convolutional network that learns their direction. private.py and
kfac.py train it."""
import torch
from torch import nn


def data(seed, n):
    """Images of 12 x 12 with a bar: lying, standing or on a diagonal; a tenth of the labels is
    wrong."""
    g = torch.Generator().manual_seed(seed)
    y, at = torch.randint(0, 3, (n,), generator=g), torch.randint(2, 10, (n,), generator=g)
    i = torch.arange(12)
    lines = [(i[:, None] == at[:, None, None]).expand(n, 12, 12),
             (i[None, :] == at[:, None, None]).expand(n, 12, 12),
             (i[:, None] - i[None, :] == (at - 6)[:, None, None])]
    x = torch.stack(lines, 1)[torch.arange(n),
                              y].float() + 0.3 * torch.randn(n, 12, 12, generator=g)
    wrong = torch.rand(n, generator=g) < 0.1
    return x[:, None], torch.where(wrong, torch.randint(0, 3, (n,), generator=g), y), y


def fresh():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(inplace=True),
                         nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(inplace=True), nn.Flatten(),
                         nn.Linear(256, 3))


def accuracy(net):
    x, _, y = data(1, 512)
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()
