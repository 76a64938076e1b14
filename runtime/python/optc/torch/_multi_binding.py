"""Values of all tensors (clip's norm) over several bindings, for tensors of several devices, types
or options, and of several processes (stages of a pipeline). The rules are compiled for that many
bindings: entries before each entry leave the value of each binding in a state, and the others read
it there (gen/ir/shared_reductions.c, optc_connect in optc.h)."""
import ctypes
import re

import torch
import torch.distributed as dist

from .. import _lib
from ._comm import comm_of

STATE = "shared."
ENTRY = re.compile(r"share_(.*)_\d+$")


# Every collective of Stages begins with one message of BLOCK numbers: its kind, the number of
# values, and the values if they fit. So a rank that binds alone meets the others in a message of
# the same size, and both see that they differ.
BINDS, STEPS = 1.0, 2.0
BLOCK, HEAD = 16, 2


def differ(kinds):
    """Raises if some ranks bind while others step. kinds: by rank"""
    if len(set(kinds)) > 1:
        raise RuntimeError(
            "group=: the ranks %s of the group bind their parameters, while the "
            "ranks %s step. add_param_group, load_state_dict, and new parameters or "
            "gradients of another type bind again: do it on all ranks of the group "
            "before the same step" %
            tuple([r for r, x in enumerate(kinds) if (x == BINDS) == own] for own in (True, False)))


class Stages:
    """The bindings of all processes of a group, in an order that all of them have. ranks: the
    processes that step this one's parameters together, which count as one stage. count: the
    bindings of this process."""

    def __init__(self, group, ranks, device, count):
        if device is None:                             # no parameters here: that of the others
            nccl = "nccl" in dist.get_backend(group)
            device = torch.device("cuda",
                                  torch.cuda.current_device()) if nccl else torch.device("cpu")
        self.comm = comm_of(dist.get_process_group_ranks(group), device)
        self.sent = torch.zeros(BLOCK, dtype=torch.float64, device=self.comm.device)
        self.received = torch.zeros(self.comm.ranks, BLOCK, dtype=torch.float64,
                                    device=self.comm.device)
        # of the last step on a GPU; the event after which they are there
        self.kinds = self.done = None
        mine = ranks or (dist.get_rank(),)
        every, self.sources, firsts = self._objects((mine, count)), [], {}
        # sources: (a rank of the group, the number of its binding)
        for r, (stage, n) in enumerate(every):
            if stage not in firsts:
                firsts[stage] = len(self.sources), n
                self.sources += [(r, j) for j in range(n)]
            elif firsts[stage][1] != n:
                raise ValueError("the ranks %s step the same parameters, with %d and %d bindings: "
                                 "their parameters have different types or options" %
                                 (list(stage), firsts[stage][1], n))
        self.first, self.most = firsts[mine][0], max(n for _, n in every)

    def _objects(self, item):
        """A small object of every rank, while all of them bind."""
        self._send(BINDS, 0)
        differ(self.received[:, 0].tolist())
        return self.comm.gathered(item)

    @torch.no_grad()
    def _send(self, kind, count):
        self.sent[0], self.sent[1] = kind, count
        dist.all_gather_into_tensor(self.received.view(-1), self.sent, group=self.comm.group)

    def _check_step(self):
        """On a CPU before the values are used. On a GPU the host does not wait: a rank that steps
        while others bind finds it at a later step, and those that bind find it at once."""
        if self.comm.device.type != "cuda":
            differ(self.received[:, 0].tolist())
        elif not torch.cuda.is_current_stream_capturing():
            if self.done is not None and self.done.query():
                differ(self.kinds.tolist())
                self.done = None
            if self.done is None:
                self.kinds = torch.empty(self.comm.ranks, dtype=torch.float64, pin_memory=True)
                self.kinds.copy_(self.received[:, 0], non_blocking=True)
                self.done = torch.cuda.Event()
                self.done.record()

    def allocate(self, own, spec):
        """own: the names of values and the entries of this process's rule, None without bindings.
        Returns those of the others."""
        every = [x for x in self._objects(own) if x is not None]
        if any(x[0] != every[0][0] for x in every):
            raise ValueError("%s: the processes of the group have different values of all tensors: "
                             "give the same rule and options to all of them" % spec)
        names = every[0][0]
        shape, self.count = (self.comm.ranks, self.most, len(names)), self.most * len(names)
        self.fits = HEAD + self.count <= BLOCK
        if self.fits:
            self.values = self.received[:, HEAD:HEAD + self.count].unflatten(1, shape[1:])
            self.mine = self.sent[HEAD:HEAD + self.count].view(shape[1:])
        else:
            self.values = torch.zeros(shape, dtype=torch.float64, device=self.comm.device)
            self.mine = torch.zeros(shape[1:], dtype=torch.float64, device=self.comm.device)
        return every[0]

    def gather(self, own):
        """own: by binding, its values"""
        for j, each in enumerate(own):
            for k, x in enumerate(each):
                self.mine[j, k].copy_(x)
        self._send(STEPS, self.count)
        self._check_step()
        if not self.fits:
            dist.all_gather_into_tensor(self.values.view(-1), self.mine.view(-1),
                                        group=self.comm.group)


def handles_of(bounds):
    """The handles of bindings that the library runs together, small ones beside a large one
    (optc_run_all). None: they are on several devices, or communicate with other processes, and run
    one after another."""
    if len(bounds) < 2 or any(
            b.comm is not None or b.rule.engine is not bounds[0].rule.engine for b in bounds):
        return None
    return (ctypes.c_void_p * len(bounds))(*[b.binding.handle for b in bounds])


class Shared:
    """Connects bindings. The host does not wait, unless they are on several devices."""

    def __init__(self, bounds, spec, stages=None):
        self.bounds, self.stages, self.entries = bounds, stages, {}
        self.copies, self.connected = [], False
        names = [[n for n in b.domains if n.startswith(STATE)] for b in bounds]
        if any(n != names[0] for n in names):
            raise ValueError("%s: with the options of some groups it has other values of all "
                             "tensors (as clip's norm) than with those of others: use one "
                             "optimizer for each" % spec)
        shared = (names[0], bounds[0].rule.entries()) if bounds else None
        shared, entries = stages.allocate(shared, spec) if stages else shared
        for entry in entries:
            found = ENTRY.match(entry)
            if found and shared:
                self.entries.setdefault(found.group(1), []).append(entry)
        self.own = [
            [b.memory.tensor(*b.binding.state(0, name)).view(()) for name in shared] for b in bounds
        ]
        first = stages.first if stages else 0
        if not stages and len({id(b.rule.engine) for b in bounds}) == 1:
            handles = (ctypes.c_void_p * len(bounds))(*[b.binding.handle for b in bounds])
            _lib.lib.optc_connect(handles, len(bounds))
            self.connected = True
            return
        for k, name in enumerate(shared):
            for j in range(len(stages.sources if stages else bounds)):
                here = first <= j < first + len(bounds)
                self._connect("%s.%d" % (name, j), self.own[j - first][k] if here else
                              stages.values[(*stages.sources[j], k)])

    def _connect(self, name, own):
        # by device: a copy of a number that is on another one
        elsewhere = {}
        for b in self.bounds:
            lies = own
            if b.device != own.device:
                if b.device not in elsewhere:
                    elsewhere[b.device] = torch.zeros((), dtype=torch.float64, device=b.device)
                    self.copies.append((elsewhere[b.device], own))
                lies = elsewhere[b.device]
            b.binding.set_scalar_from(-1, name, lies.data_ptr(), _lib.F64)

    def idle(self, entry):
        """Whether an entry with such values has no gradient in any binding, so that there is
        nothing to do. Other processes may have some."""
        return not self.stages and entry in self.entries and not any(
            any(b.ptrs) for b in self.bounds)

    @torch.no_grad()
    def run(self, entry):
        """Computes the values that an entry needs."""
        for level in self.entries.get(entry, ()):
            for b in self.bounds:
                b.share(level)
            if self.stages:
                self.stages.gather(self.own)
            for to, own in self.copies:
                to.copy_(own)
