"""The line protocol of peers of `optc bench --against …`. tools/bench/bench_peer.c is the other
side.

    open ID ELEMENTS SHAPES graph|eager RULE[?OPTIONS] [WRAPPERS] ok WHAT [| WHAT AS A GRAPH] | none
    WHY
    step ID [STEPS]                                                  MS HOST_US [MS HOST_US] | none
                                                                     WHY
    close ID                                                         ok
SHAPES: such as 8192x8192,100*65536. STEPS: the peer reports the mean of this many consecutive
steps, for rules whose steps differ; without STEPS the peer chooses how it times a step. At the
start a peer prints `ready NAME VERSION` or
`none WHY`. It ends at the end of its input.
"""
import math
import os
import sys

# Answers go to what was standard output; whatever a library prints does not.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def say(text):
    try:
        print(" ".join(text.split()), file=answers, flush=True)
    except BrokenPipeError:                      # the other side has left
        os._exit(0)


def reason(e):
    text = str(e).strip().replace("|", "/")      # which divides the parts of an answer
    return f"{type(e).__name__}: {text.splitlines()[0][:200]}" if text else type(e).__name__


def shapes_of(text):
    out = []
    for item in text.split(","):
        count, _, dims = item.rpartition("*")
        out += [tuple(int(d) for d in dims.split("x"))] * int(count or 1)
    return out


def places_of(shapes):
    """Where each tensor begins: at a line, as from an allocator."""
    at, out = 0, []
    for shape in shapes:
        out.append(at)
        at += (math.prod(shape) + 63) // 64 * 64
    return out


def options_of(rule):
    """'soap?limit=64,start=identity' -> 'soap', {'limit': 64, 'start': 'identity'}"""
    name, _, text = rule.partition("?")
    options = {}
    for item in filter(None, text.split(",")):
        key, _, value = item.partition("=")
        value = value.strip("'\"")
        options[key] = {"true": True, "false": False}.get(value,
                                                          int(value) if value.isdigit() else value)
    return name, options


def serve(peer, ready):
    say(f"ready {ready}")
    for line in sys.stdin:
        word, *rest = line.split() or [""]
        try:
            say({"open": peer.open, "step": peer.step, "close": peer.close}[word](*rest))
            continue
        except Exception as e:
            why = f"none {reason(e)}"
        # what it had made until then is in nobody's way any more
        if word == "open":
            peer.close(rest[0] if rest else "")
        say(why)
