"""States in block codes (runtime/TYPES.md): opt.state shows the codes as uint8 in the parameter's
shape, the scales of their blocks under NAME_scale, and the number of their type under NAME_code.
This converts between types of states, and reads 8-bit states of bitsandbytes and torchao."""
import ctypes
import functools
import struct
import warnings

import torch

from .. import _lib
from .._api import Binding, Engine

BLOCK, LEAST = 128, 4096                               # OPTC_CODED, OPTC_LEAST_CODED
# Whether codes have a sign, and the smallest magnitude that a scale is made of.
ROWS = {
    "q8": (True, 2.0 ** -100), "q8u": (False, 2.0 ** -100), "f8": (True, 2.0 ** -94),
    "f8u": (False, 2.0 ** -94)
}
CODES = {t.number: t.name for t in _lib.TYPES if t.name in ROWS}       # {optc_type: name}
SCALE, CODE = "_scale", "_code"
# What bitsandbytes calls state1 and state2, of the rules that it has.
FIRST, SECOND = ("exp_avg", "momentum_buffer", "square_avg", "sum"), ("exp_avg_sq",)
# where newer versions keep the tensors of an entry
BITSANDBYTES = "__bnb_optimizer_quant_state__"


def blocks(count):
    return -(-count // BLOCK)


# ---- codes and values, flat and in the order of memory ----
@functools.lru_cache(maxsize=None)
def _table(name):
    """The value of each code relative to the scale, as the library reads it."""
    # the reference evaluator: nothing is compiled
    engine = Engine("cpu", compiler="", cache_dir="")
    value = "g" if ROWS[name][0] else "g * g"
    rule = engine.compile(text="return optimizer { name = 'codes', state = { x = zeros('elem', "
                          "'%s') },\n  step = function() x = lerp(x, %s, 0.5)  p = p - x end }" %
                          (name, value))
    bound = Binding(rule,
                    [([{"param": torch.zeros(LEAST, dtype=torch.float32, device="cpu")}], {})])
    state = bytes(k % 256 for k in range(LEAST)) + struct.pack("f", 1.0) * blocks(LEAST)
    ctypes.memmove(bound.state(0, "x")[0], state, len(state))
    return torch.tensor(bound.read(0, "x", LEAST)[:256], dtype=torch.float32, device="cpu")


def decode(codes, scale, name):
    found = _table(name).to(codes.device)[codes.long()]
    return found * scale.repeat_interleave(BLOCK)[:codes.numel()]


def encode(values, name):
    """(codes, scales) of f32 values, rounded to nearest."""
    (sign, floor), n = ROWS[name], values.numel()
    # of codes without a sign, ascending
    sizes = _table(name)[:128 if sign else 256].to(values.device)
    top = sizes[-1]
    x = torch.zeros(blocks(n) * BLOCK, dtype=torch.float32, device=values.device)
    x[:n] = values
    x = x.view(-1, BLOCK)
    size = x.abs()
    most = size.amax(1)
    # code 1 at the smallest scale
    least = floor / top * sizes[1] if sign else 2.0 ** -149
    scale = torch.where(most < least, torch.zeros_like(most), most.clamp(min=floor) / top)
    relative = torch.where(scale[:, None] > 0, size / scale[:, None], torch.zeros_like(size))
    code = torch.searchsorted((sizes[1:] + sizes[:-1]) / 2, relative).int()
    code = code | (torch.signbit(x).int() << 7) if sign else torch.maximum(code, (size > 0).int())
    bad = ~torch.isfinite(x).all(1)
    code[bad] = 0
    scale[bad] = torch.nan
    return code.to(torch.uint8).view(-1)[:n], scale


# ---- states of an entry ----
def in_order(x, like=None):
    """The values of x in the order of memory: x's own, or that of `like`, which has x's shape."""
    if like is not None and x.stride() != like.stride():
        x = torch.empty_strided(like.shape, like.stride(), dtype=x.dtype,
                                device=x.device).copy_(x.reshape(like.shape))
    return x.as_strided((x.numel(),), (1,))


def is_coded(own, key):
    value = own.get(key)
    return isinstance(
        value, torch.Tensor) and value.dtype == torch.uint8 and own.get(key + SCALE) is not None


def _values(own, key, name):
    """The f32 values of a coded state of an entry."""
    codes, scale = own[key], own[key + SCALE]
    if scale.numel() != blocks(codes.numel()):
        raise ValueError("state '%s' of %s has %d codes and %d scales: a scale for each %d codes "
                         "is wanted" % (
            key, name, codes.numel(), scale.numel(), BLOCK))
    kind = CODES.get(int(own.get(key + CODE) or 0))
    if kind is None:
        raise ValueError(
            "state '%s' of %s has no '%s' that this version knows" % (key, name, key + CODE))
    return decode(in_order(codes),
                  scale.to(codes.device).view(-1), kind).as_strided(codes.shape, codes.stride())


def _warn(key, was, now):
    warnings.warn(
        "optc: state '%s' was loaded as %s and is stored as %s here: it was converted" %
        (key, was, now), stacklevel=2)


def fitting(own, views, kinds, name):
    """An entry as a binding stores it. views: its live states; kinds: {state: optc_type} of those
    in codes."""
    made = dict(own)
    for key, view in views.items():
        kind, value = kinds.get(key), own.get(key)
        if kind is not None and isinstance(value, torch.Tensor) and value is not view:
            same = is_coded(own, key) and int(own.get(key + CODE) or
                                              kind) == kind and value.stride() == view.stride()
            if not same and list(value.shape) == list(view.shape):
                _warn(
                    key,
                    CODES.get(own.get(key +
                                      CODE), value.dtype) if is_coded(own, key) else value.dtype,
                    CODES[kind])
                value = _values(own, key, name) if is_coded(own, key) else value.float()
                codes, made[key + SCALE] = encode(in_order(value, view), CODES[kind])
                made[key] = codes.as_strided(view.shape, view.stride())
        elif is_coded(own, key) and view.dtype != torch.uint8:
            _warn(key, CODES.get(own.get(key + CODE)), view.dtype)
            made[key] = _values(own, key, name)
    return made


# ---- others' files ----
def _mapped(codes, qmap, scale):
    """Values of codes that are numbers of a table, with a scale for each block of equally many."""
    flat, n = codes.reshape(-1).long(), codes.numel()
    each = next((k for k in (256, 2048, 128, 64) if -(-n // k) == scale.numel()),
                -(-n // max(scale.numel(), 1)))
    return (qmap.float()[flat] * scale.float().view(-1).repeat_interleave(each)[:n]).view(
        codes.shape)


def _torchao(value):
    """OptimState8bit of torchao, as an object or a dictionary of its parts."""
    part = value.get if isinstance(value, dict) else lambda k: getattr(value, k, None)
    codes, scale, qmap = part("codes"), part("scale"), part("qmap")
    if all(isinstance(x, torch.Tensor) for x in (codes, scale, qmap)):
        return _mapped(codes, qmap, scale)
    return value


def translated(own, kept):
    """An entry of a file with states of bitsandbytes or torchao as f32; others as they are. kept:
    the rule's states."""
    if not isinstance(own, dict):
        return own
    own = {**{k: v for k, v in own.items() if k != BITSANDBYTES}, **own.get(BITSANDBYTES, {})}
    for n, names in (("1", FIRST), ("2", SECOND)):
        value, key = own.get("state" + n), next((k for k in names if k in kept), None)
        if value is None or key is None:
            continue
        if value.dtype == torch.uint8:
            if own.get("absmax" + n) is None:
                raise ValueError("bitsandbytes' states without blocks (block_wise=False) cannot be "
                                 "read: '%s' has no 'absmax%s'" % ("state" + n, n))
            value = _mapped(value, own["qmap" + n], own["absmax" + n])
        own[key] = value
    for key in [k for k in own if k[:-1] in ("state", "qmap", "absmax")] if "state1" in own else ():
        del own[key]
    return {k: _torchao(v) if k != "step" else v for k, v in own.items()}
