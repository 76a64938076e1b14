"""Values of all tensors (clip's norm) over several bindings, for tensors of several devices, types or options. The
rules are compiled for that many bindings: entries before each entry leave the value of each binding in a state, and the
others read it there (gen/ir/shared_reductions.c, optc_connect in optc.h)."""
import re

import torch

from .. import _lib

STATE = "shared."
ENTRY = re.compile(r"share_(.*)_\d+$")


class Shared:
    """Connects bindings. The host does not wait, unless they are on several devices."""

    def __init__(self, bounds, spec):
        self.bounds, self.entries, self.copies = bounds, {}, []
        names = [[n for n in b.domains if n.startswith(STATE)] for b in bounds]
        if any(n != names[0] for n in names):
            raise ValueError("%s: with the options of some groups it has other values of all tensors (as clip's norm) "
                             "than with those of others: use one optimizer for each" % spec)
        for entry in bounds[0].rule.entries():
            found = ENTRY.match(entry)
            if found and names[0]:
                self.entries.setdefault(found.group(1), []).append(entry)
        for name in names[0]:
            for j, b in enumerate(bounds):
                self._connect("%s.%d" % (name, j), b.memory.tensor(*b.binding.state(0, name)).view(()))

    def _connect(self, name, own):
        elsewhere = {}                                 # by device: a copy of a number that is on another one
        for b in self.bounds:
            lies = own
            if b.device != own.device:
                if b.device not in elsewhere:
                    elsewhere[b.device] = torch.zeros((), dtype=torch.float64, device=b.device)
                    self.copies.append((elsewhere[b.device], own))
                lies = elsewhere[b.device]
            b.binding.set_scalar_from(-1, name, lies.data_ptr(), _lib.F64)

    def idle(self, entry):
        """Whether an entry with such values has no gradient in any binding, so that there is nothing to do."""
        return entry in self.entries and not any(any(b.ptrs) for b in self.bounds)

    @torch.no_grad()
    def run(self, entry):
        """Computes the values that an entry needs."""
        for level in self.entries.get(entry, ()):
            for b in self.bounds:
                b.share(level)
            for to, own in self.copies:
                to.copy_(own)
