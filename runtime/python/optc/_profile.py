"""Profiles: optc_profile_start and optc_profile_stop of optc.h (runtime/PROFILE.md)."""
import ctypes
import json

from ._lib import OutOfMemory, lib


def _text(trace):
    at = lib.optc_profile_text(trace)
    if not at:
        raise OutOfMemory("optc_profile_text: out of memory")
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    try:
        return ctypes.string_at(at).decode("utf-8", "replace")
    finally:
        free(at)


class Profile:
    """Records all runs of this process between `with` and its end. The results stay after the
    end."""

    def __init__(self):
        self._done = None                              # (table, trace), after the end

    def __enter__(self):
        self._done = None
        lib.optc_profile_start()
        return self

    def __exit__(self, *_):
        lib.optc_profile_stop()
        self._done = _text(0), _text(1)

    def table(self):
        """The table of rules and stages, as text."""
        return self._done[0] if self._done else _text(0)

    def _trace(self):
        return self._done[1] if self._done else _text(1)

    @property
    def events(self):
        """The recorded intervals, in Chrome's trace format: dicts with name, cat, ts, dur
        (microseconds), args."""
        return [e for e in json.loads(self._trace())["traceEvents"] if e["ph"] == "X"]

    @property
    def totals(self):
        """One dict per row of the table: name, of (the entry it belongs to), launches, timed, ns,
        bytes, flops."""
        return json.loads(self._trace())["totals"]

    def save(self, path):
        """Writes the trace into a file, for chrome://tracing and https://ui.perfetto.dev."""
        with open(path, "w") as f:
            f.write(self._trace())


def profile():
    """`with optc.profile() as prof:` records the stages of all steps inside; then prof.table(),
    prof.save(path)."""
    return Profile()
