"""Memory of a device, and the machine's best device."""
import ctypes
from typing import Any, Dict, Optional, Tuple, Union

import torch

from .. import _lib
from .. import best_device as best_of_optc
from .. import device_count
from ._engines import device_of, engines


def memory_info(device: Optional[Any] = None) -> Dict[str, int]:
    """Bytes of a device (default: the current GPU, otherwise the CPU).

    total, free  of the device
    ours, peak   held by optc for optimizers and functions, now and at most so far
    functions    of them, held by functions for their next call; optc.torch.empty_cache() frees it
    allocated, reserved  by torch; 0 on a CPU"""
    device = _device(device)
    found = {"total": 0, "free": 0, "ours": 0, "peak": 0, "functions": 0}
    for engine in engines(device) or [device_of(device).engine]:
        m = engine.memory()
        found.update(total=m["total"], free=m["free"], ours=found["ours"] + m["ours"],
                     peak=found["peak"] + m["peak"])
        held = ctypes.c_int64()
        _lib.lib.optc_functions_held(engine.handle, held)
        found["functions"] += held.value
    gpu = device.type == "cuda"
    found["allocated"] = torch.cuda.memory_allocated(device) if gpu else 0
    found["reserved"] = torch.cuda.memory_reserved(device) if gpu else 0
    return found


def _device(device):
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(
            "optc.torch.memory_info: %s is not supported: use the CPU or an NVIDIA GPU" % device)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError("optc.torch.memory_info: torch has no CUDA here: use 'cpu'")
        index = torch.cuda.current_device() if device.index is None else device.index
        if index >= torch.cuda.device_count():
            raise ValueError("optc.torch.memory_info: there is no cuda:%d (there are %d)"
                             % (index, torch.cuda.device_count()))
        return torch.device("cuda", index)
    return torch.device("cpu")                         # also for "cpu:0"


def empty_cache() -> None:
    """Frees the memory that functions hold for their next call, except memory that captured graphs
    use."""
    for engine in engines():
        _lib.lib.optc_functions_drop(engine.handle)


def best_device(why: bool = False) -> Union[torch.device, Tuple[torch.device, str]]:
    """The best device for both torch and optc: the GPU with the most multiprocessors, otherwise the
    CPU. why=True: returns (device, reason). Never raises."""
    try:
        name, reason = _best()
    # for example a damaged driver: the reason is reported
    except Exception as e:
        name, reason = "cpu", "no GPU can be asked: %s" % e
    return (torch.device(name), reason) if why else torch.device(name)


def _best():
    if not torch.cuda.is_available():
        built = torch.version.cuda is not None
        return "cpu", ("torch has no GPU to use here" if built else
                       "this torch is built without CUDA")
    name = best_of_optc()
    if not name.startswith("cuda"):
        return "cpu", "torch sees a GPU, and optc %s" % (
            "finds no NVRTC to compile rules for it (optc doctor says more)"
            if device_count() else "no NVIDIA driver")
    index = int(name.partition(":")[2])
    if index >= torch.cuda.device_count():             # torch may see fewer GPUs
        return "cuda:0", "the only one that torch sees of several"
    return name, "%s, the GPU with the most multiprocessors (%d) of %d" % (
        torch.cuda.get_device_name(index),
        torch.cuda.get_device_properties(index).multi_processor_count, torch.cuda.device_count())
