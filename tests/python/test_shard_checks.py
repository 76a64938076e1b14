"""The checks of sharded training by gloo, on two ranks and on three, which have pieces of different
sizes."""
import traceback
from unittest import mock

import torch
import torch.distributed as dist

import shard_checks
from case import Case
from optc.torch._sharded import as_dtensor
from ranks import in_ranks


# test_sharded_files.py has more than `saves`
TWO = [c for c in shard_checks.CHECKS if c is not shard_checks.saves]
THREE = [shard_checks.offloads, shard_checks.averages, shard_checks.mixes]


def every_check(checks, *names):
    found = [] if shares_memory() else ["a local tensor on another device than the mesh's was "
                                        "copied"]
    for check in checks:
        for name in names:
            try:
                check("cpu", name)
            except Exception:
                found.append("%s, %s: %s" % (check.__name__, name, traceback.format_exc()))
    return found


def shares_memory():
    """CPU offload: the local tensor is on the CPU, the mesh on GPUs."""
    from torch.distributed.tensor import DeviceMesh, Shard, init_device_mesh
    mesh, here = init_device_mesh("cpu", (dist.get_world_size(),)), torch.ones(2, 3)
    with mock.patch.object(DeviceMesh, "device_type", "cuda"):
        made = as_dtensor(here, mesh, [Shard(0)], (2 * dist.get_world_size(), 3), (3, 1))
    return made._local_tensor.data_ptr() == here.data_ptr() and made.shape == (
        2 * dist.get_world_size(), 3)


class ShardChecks(Case):
    maxDiff = None

    def test_two_ranks(self):
        self.assertEqual(in_ranks(2, every_check, TWO, "adamw+clip", "muon"), [[], []])

    def test_three_ranks(self):
        self.assertEqual(in_ranks(3, every_check, THREE, "soap"), [[], [], []])
