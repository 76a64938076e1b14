"""Sharded training on GPUs: the checks of tests/python/shard_checks.py with NCCL, one line for
each. With one GPU the parameters step as with several ranks: all exchanges run. With several:
torchrun --nproc-per-node=N tests/gpu/sharded.py
    python3 tests/gpu/sharded.py [cpu]        after `make`; needs a torch with CUDA; cpu: by gloo,
                                              without a GPU
"""
import os
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(TOP, "runtime", "python"), os.path.join(TOP, "tests", "python")]
os.environ.setdefault("OPTC_LIBRARY", os.path.join(TOP, "build", "liboptc.so"))

import torch                                           # noqa: E402
import torch.distributed as dist                       # noqa: E402

import shard_checks as checks                          # noqa: E402


def begin(device):
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    if "RANK" in os.environ:
        if device == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        dist.init_process_group(backend)
    else:
        store = "file://" + os.path.join(tempfile.mkdtemp(), "store")
        dist.init_process_group(backend, init_method=store, rank=0, world_size=1)


def attempt(check, device, name):
    start = time.monotonic()
    try:
        with checks.gathers():
            check(device, name)
        said = "ok"
    except Exception as e:
        said = "FAILED: %s: %s" % (type(e).__name__, str(e).split("\n")[0][:300])
        if os.environ.get("OPTC_TRACE"):
            traceback.print_exc()
    if dist.get_rank() == 0 or said != "ok":
        print("%-14s %-11s %6.2f s  %s" % (check.__name__, name, time.monotonic() - start, said),
              flush=True)
    return said == "ok"


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    begin(device)
    print("torch %s, %s, %d ranks" % (torch.__version__, device, dist.get_world_size()), flush=True)
    wanted = checks.CHECKS + ((checks.captures,) if device == "cuda" else ())
    done = [attempt(check, device, name) for check in wanted for name in checks.RULES]
    print("%d of %d checks passed" % (sum(done), len(done)))
    dist.destroy_process_group()
    return not all(done)


if __name__ == "__main__":
    sys.exit(main())
