"""Checks a wheel, unpacked in $WHEEL: its contents, and that it needs nothing else."""
import base64
import hashlib
import os
import platform
import subprocess
import sys
import tempfile

site = os.environ["WHEEL"]
sys.path.insert(0, site)
os.environ.pop("OPTC_LIBRARY", None)
os.environ.pop("LD_LIBRARY_PATH", None)
import optc                                            # noqa: E402

assert optc.__file__.startswith(site), optc.__file__
info = [d for d in os.listdir(site) if d.endswith(".dist-info")][0]
with open(os.path.join(site, info, "WHEEL")) as f:
    tag = f.read().split("Tag: ")[1].strip()
assert tag.startswith("py3-none-manylinux_2_") and tag.endswith(os.uname().machine), tag
assert tuple(map(int,
                 platform.libc_ver()[1].split("."))) >= tuple(map(int,
                                                                  tag.split("_")[1:3])), tag
# What pip is told before it builds is what the wheel says.
sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "runtime", "python"))
import build_wheel                                     # noqa: E402

with tempfile.TemporaryDirectory() as folder:
    assert build_wheel.prepare_metadata_for_build_wheel(folder) == info
    for name in ("METADATA", "entry_points.txt", "licenses/LICENSE"):
        with open(os.path.join(folder, info, name)) as f, open(os.path.join(site, info, name)) as g:
            assert f.read() == g.read(), name
# The tag is that of the binaries, not of this machine: a cross compiler makes wheels for another
# one.
arm, intel = (b"\x7fELF\2\1" + bytes(12) + n + b"\0\0GLIBC_2.17\0" for n in (b"\xb7", b"\x3e"))
assert build_wheel.tag([arm]) == "py3-none-manylinux_2_17_aarch64", build_wheel.tag([arm])
assert build_wheel.tag([intel, intel]) == "py3-none-manylinux_2_17_x86_64", build_wheel.tag([intel])
try:
    build_wheel.tag([arm, intel])
    raise AssertionError("a wheel contains libraries of two CPUs")
except SystemExit as e:
    assert "aarch64, x86_64" in str(e), e
with tempfile.TemporaryDirectory() as folder:
    os.makedirs(os.path.join(folder, "gpu", "rules"))
    for name in ("manifest", "rules.fatbin"):
        open(os.path.join(folder, "gpu", "rules", name), "w").close()
    assert [n for n, _ in build_wheel.gpu_packages(folder)
            ] == ["optc/_bundled/gpu/rules/manifest", "optc/_bundled/gpu/rules/rules.fatbin"]
    open(os.path.join(folder, "gpu", "rules", "rules.c"), "w").close()
    try:
        list(build_wheel.gpu_packages(folder))
        raise AssertionError("a package with sources goes into the wheel, where its check would "
                             "fail")
    except SystemExit as e:
        assert "--code-only" in str(e), e
del sys.path[0]
listed = set()
with open(os.path.join(site, info, "RECORD")) as f:
    for line in f:
        name, digest, size = line.strip().rsplit(",", 2)
        listed.add(name)
        if digest:
            with open(os.path.join(site, name), "rb") as g:
                data = g.read()
            want = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert digest == "sha256=" + want and int(size) == len(data), name
there = {os.path.relpath(os.path.join(d, n), site) for d, _, names in os.walk(site) for n in names
         if "__pycache__" not in d}
assert there == listed, there ^ listed
p, g = ((optc._lib.ctypes.c_float * 3)(1, 2, 3) for _ in range(2))
optc.Engine().compile("adamw").bind([([{"param": p, "grad": g, "shape": (3,)}], {})]).step()
with open("/proc/self/maps") as f:
    mapped = {line.split()[-1] for line in f if ".so" in line}
for name in os.listdir(os.path.join(site, "optc", "_bundled")):
    # torch's, if it is there
    if name.endswith((".so.1", ".so.0", ".so")) and not name.startswith("libgomp"):
        assert os.path.join(site, "optc", "_bundled", name) in mapped, name
said = subprocess.run([sys.executable, "-m", "optc", "check", "adamw"],
                      env=dict(os.environ,
                               PYTHONPATH=site), stdout=subprocess.PIPE, text=True).stdout
assert said.startswith("ok"), said
print("wheel: %d files, %.1f MB unpacked" %
      (len(listed), sum(os.path.getsize(os.path.join(site, n)) for n in listed) / 1e6))
