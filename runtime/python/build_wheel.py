"""The backend that `pip install ./runtime/python` calls (PEP 517, 660): make builds the library and
the command in the source tree, and both go into a wheel with the shared libraries they need except
libc. It needs only Python.

$BUILD names the build folder (default build), $MAKE the program; MAKEFLAGS and CC are make's own.
With a cross compiler, $EMULATOR runs its programs and $ROOT is the folder of that machine's
libraries (tools/release.sh). The build's lines are shown on the terminal, and by `pip install -v`.
Packages of `optc ship --code-only` in BUILD/python/gpu go into the wheel too: tools/release.sh
makes them, and GPUs then need no NVRTC for their rules.
"""
import base64
import glob
import hashlib
import os
import re
import subprocess
import struct
import sysconfig
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.normpath(os.path.join(HERE, "..", ".."))
# Libraries that every Linux with glibc has.
SYSTEM = re.compile(r"(linux-vdso|linux-gate|ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s))\.so")
MACHINES = {62: "x86_64", 183: "aarch64"}                          # e_machine of ELF files
EXTRAS = {"torch": "torch>=2.6", "blas": "scipy-openblas32"}       # as pyproject.toml has them


def version():
    with open(os.path.join(TREE, "runtime", "optc.h")) as f:
        return re.search(r'OPTC_VERSION "(.*)"', f.read()).group(1)


def glibc_needed(data):
    """The newest version of glibc whose symbols a library or program needs, as (2, 34); None: it
    needs no glibc."""
    found = [(int(a), int(b)) for a, b in re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)", data)
             ]
    return max(found, default=None)


def machine(binary):
    """The CPU that a library or program is for, as wheels name it; None: another than these."""
    header = struct.unpack_from("<4sBB12xH", binary) if len(binary) >= 20 else None
    return MACHINES.get(header[3]) if header and header[:3] == (b"\x7fELF", 2, 1) else None


def tag(binaries):
    """manylinux_2_34_x86_64 (PEP 600) if the symbols tell the oldest glibc that suffices, else
    linux_x86_64. The CPU is that of the binaries: a cross compiler makes other ones than this
    Python's."""
    binaries = list(binaries)
    found = {machine(b) for b in binaries}
    if len(found) > 1:
        raise SystemExit("libraries of different CPUs: %s. Set ROOT to the folder of the target's "
                         "libraries."
                         % ", ".join(sorted(map(str, found))))
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    if found and platform.startswith("linux_") and None not in found:
        platform = "linux_" + found.pop()
    versions = [v for v in map(glibc_needed, binaries) if v]
    if versions and platform.startswith("linux_"):
        platform = "manylinux_%d_%d" % max(versions) + platform[len("linux"):]
    return "py3-none-" + platform


def metadata():
    lines = [
        "Metadata-Version: 2.4", "Name: optc", "Version: " + version(), "Requires-Python: >=3.9",
        "Summary: Compiled optimizers: any spec as a torch.optim.Optimizer",
        "License-Expression: MIT", "License-File: LICENSE"
    ]
    for extra, package in EXTRAS.items():
        lines += ["Provides-Extra: " + extra, 'Requires-Dist: %s; extra == "%s"' % (package, extra)]
    return "\n".join(lines) + "\n"


def info_files():
    return {
        "METADATA": metadata(),
        "entry_points.txt": "[console_scripts]\noptc = optc.__main__:main\n",
        "licenses/LICENSE": read(os.path.join(TREE, "LICENSE")).decode()
    }


def run_shown(command):
    """Runs a command. Its lines go to standard output, which pip hides without -v, and one by one
    to the terminal."""
    try:
        terminal = None if os.isatty(1) else open("/dev/tty", "w")
    except OSError:
        terminal = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as made:
        for line in made.stdout:
            print(line, end="", flush=True)
            if terminal:
                print("\r\033[K  optc: " + line.rstrip()[:60], end="", file=terminal, flush=True)
    if terminal:
        print("\r\033[K", end="", file=terminal, flush=True)
        terminal.close()
    return made.returncode


def built(target="python"):
    """Builds liboptc.so and optc for a wheel and returns their folder."""
    build = os.environ.get("BUILD") or "build"
    make = os.environ.get("MAKE") or "make"
    try:
        failed = run_shown([make, "-C", TREE, "--no-print-directory", "BUILD=" + build, target])
    except FileNotFoundError:
        failed = "there is no '%s'" % make
    # pip shows the last lines: without a traceback they are make's
    if failed:
        raise SystemExit("optc was not built: %s. It takes make, a C compiler and the headers of "
                         "Lua 5.4, which 'make setup' in %s installs on Debian and Ubuntu; "
                         "README.md says how others are named." %
                         ("see make's output above" if isinstance(failed, int) else failed, TREE))
    return os.path.join(TREE, build, "python")


def needed(library):
    """Shared libraries that it needs and that not every Linux has: {name: path}."""
    emulator, root = os.environ.get("EMULATOR", "").split(), os.environ.get("ROOT") or ""
    loaders = glob.glob(os.path.join(root, "lib", "ld-linux-*.so.*"))
    if emulator and not loaders:
        raise SystemExit("no ROOT/lib/ld-linux-*.so.*: set ROOT to a folder with the libraries "
                         "that EMULATOR uses")
    # what ldd of that machine would run
    command = emulator + [loaders[0], "--list"] if emulator else ["ldd"]
    found = {}
    for line in subprocess.run(command + [library], check=True, stdout=subprocess.PIPE,
                               text=True).stdout.split("\n"):
        name, _, where = line.strip().partition(" => ")
        if where and not SYSTEM.match(name):
            path = where.split(" (")[0]
            if emulator and not path.startswith(root):
                path = root + path
            if not os.path.isfile(path):
                raise RuntimeError("%s needs %s, which is not here" % (library, name))
            found[name] = os.path.realpath(path)
    return found


class Wheel:
    """Writes a zip file with its record. Dates are fixed, so that the same sources give the same
    bytes."""

    def __init__(self, folder, tag):
        self.tag, self.record = tag, []
        self.name, self.info = (
            "optc-%s%s" % (version(), end) for end in ("-%s.whl" % tag, ".dist-info"))
        self.zip = zipfile.ZipFile(os.path.join(folder, self.name), "w", zipfile.ZIP_DEFLATED,
                                   compresslevel=6)

    def add(self, name, data, executable=False):
        data = data.encode() if isinstance(data, str) else data
        info = zipfile.ZipInfo(name)
        info.external_attr = (0o100755 if executable else 0o100644) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append("%s,sha256=%s,%d" % (name, digest, len(data)))

    def close(self):
        for name, text in info_files().items():
            self.add(self.info + "/" + name, text)
        self.add(
            self.info + "/WHEEL",
            "Wheel-Version: 1.0\nGenerator: optc\nRoot-Is-Purelib: false\nTag: %s\n" % self.tag)
        self.zip.writestr(self.info + "/RECORD",
                          "\n".join(self.record + [self.info + "/RECORD,,", ""]))
        self.zip.close()
        return self.name


def read(path):
    with open(path, "rb") as f:
        return f.read()


def package():
    """(name in the wheel, path) of the package's own files."""
    top = os.path.join(HERE, "optc")
    for folder, below, files in os.walk(top):
        below[:] = sorted(d for d in below if d not in ("__pycache__", "_bundled"))
        for file in sorted(files):
            if file.endswith((".py", ".pyi", "py.typed")):
                path = os.path.join(folder, file)
                yield os.path.relpath(path, HERE), path


def gpu_packages(folder):
    """(name in the wheel, path) of the files that the library reads of packages in folder/gpu."""
    top = os.path.join(folder, "gpu")
    for name in sorted(os.listdir(top)) if os.path.isdir(top) else []:
        for file in sorted(os.listdir(os.path.join(top, name))):
            # its manifest lists files of no use here
            if file != "manifest" and not file.endswith(".fatbin"):
                raise SystemExit("%s contains %s: make it again by 'optc ship --code-only', which "
                                 "writes no sources"
                                 % (os.path.join(top, name), file))
            yield "optc/_bundled/gpu/%s/%s" % (name, file), os.path.join(top, name, file)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    folder = built()
    paths = {name: os.path.join(folder, name) for name in ("liboptc.so", "optc")}
    paths.update(sorted(needed(paths["liboptc.so"]).items()))
    binaries = {name: read(path) for name, path in paths.items()}
    wheel = Wheel(wheel_directory, tag(binaries.values()))
    for name, path in package():
        wheel.add(name, read(path))
    for name, data in binaries.items():
        wheel.add("optc/_bundled/" + name, data, executable=True)
    for name, path in gpu_packages(folder):
        wheel.add(name, read(path))
    return wheel.close()


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Editable: the package stays where it is and uses the library of the build tree."""
    built("all")
    wheel = Wheel(wheel_directory, tag([]))
    wheel.add("optc.pth", HERE + "\n")
    return wheel.close()


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """The metadata without a build: pip asks for it first."""
    info = "optc-%s.dist-info" % version()
    for name, text in info_files().items():
        path = os.path.join(metadata_directory, info, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)
    return info


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_editable = get_requires_for_build_wheel
