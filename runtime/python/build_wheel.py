"""The backend that `pip install ./runtime/python` calls (PEP 517, 660): make builds the library and the command in the
source tree, and both go into a wheel with the shared libraries they need except libc. It needs only Python.

$BUILD names the build folder (default build), $MAKE the program; MAKEFLAGS and CC are make's own. The build's lines are
shown on the terminal, and by `pip install -v`.
"""
import base64
import hashlib
import os
import re
import subprocess
import sysconfig
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.normpath(os.path.join(HERE, "..", ".."))
# Libraries that every Linux with glibc has.
SYSTEM = re.compile(r"(linux-vdso|linux-gate|ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s))\.so")
EXTRAS = {"torch": "torch>=2.6", "blas": "scipy-openblas32"}       # as pyproject.toml has them


def version():
    with open(os.path.join(TREE, "runtime", "optc.h")) as f:
        return re.search(r'OPTC_VERSION "(.*)"', f.read()).group(1)


def tag():
    return "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


def metadata():
    lines = ["Metadata-Version: 2.1", "Name: optc", "Version: " + version(), "Requires-Python: >=3.9",
             "Summary: Compiled optimizers: any spec as a torch.optim.Optimizer"]
    for extra, package in EXTRAS.items():
        lines += ["Provides-Extra: " + extra, 'Requires-Dist: %s; extra == "%s"' % (package, extra)]
    return "\n".join(lines) + "\n"


def info_files():
    return {"METADATA": metadata(), "entry_points.txt": "[console_scripts]\noptc = optc.__main__:main\n",
            "WHEEL": "Wheel-Version: 1.0\nGenerator: optc\nRoot-Is-Purelib: false\nTag: %s\n" % tag()}


def run_shown(command):
    """Runs a command. Its lines go to standard output, which pip hides without -v, and one by one to the terminal."""
    try:
        terminal = None if os.isatty(1) else open("/dev/tty", "w")
    except OSError:
        terminal = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as made:
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
    if failed:                                         # pip shows the last lines: without a traceback they are make's
        raise SystemExit("optc was not built: %s. It takes make, a C compiler and the headers of Lua 5.4, which 'make "
                         "setup' in %s installs on Debian and Ubuntu; README.md says how others are named." % (
                             "see make's output above" if isinstance(failed, int) else failed, TREE))
    return os.path.join(TREE, build, "python")


def needed(library):
    """Shared libraries that it needs and that not every Linux has: {name: path}."""
    found = {}
    for line in subprocess.run(["ldd", library], check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n"):
        name, _, where = line.strip().partition(" => ")
        if where and not SYSTEM.match(name):
            path = where.split(" (")[0]
            if not os.path.isfile(path):
                raise RuntimeError("%s needs %s, which is not here" % (library, name))
            found[name] = os.path.realpath(path)
    return found


class Wheel:
    """Writes a zip file with its record. Dates are fixed, so that the same sources give the same bytes."""

    def __init__(self, folder, name):
        self.name, self.record = name, []
        self.zip = zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED, compresslevel=6)

    def add(self, name, data, executable=False):
        data = data.encode() if isinstance(data, str) else data
        info = zipfile.ZipInfo(name)
        info.external_attr = (0o100755 if executable else 0o100644) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append("%s,sha256=%s,%d" % (name, digest, len(data)))

    def close(self, info):
        for name, text in info_files().items():
            self.add(info + "/" + name, text)
        self.zip.writestr(info + "/RECORD", "\n".join(self.record + [info + "/RECORD,,", ""]))
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


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    folder = built()
    wheel = Wheel(wheel_directory, "optc-%s-%s.whl" % (version(), tag()))
    for name, path in package():
        wheel.add(name, read(path))
    for file in ("liboptc.so", "optc"):
        wheel.add("optc/_bundled/" + file, read(os.path.join(folder, file)), executable=True)
    for name, path in sorted(needed(os.path.join(folder, "liboptc.so")).items()):
        wheel.add("optc/_bundled/" + name, read(path), executable=True)
    return wheel.close("optc-%s.dist-info" % version())


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Editable: the package stays where it is and uses the library of the build tree."""
    built("all")
    wheel = Wheel(wheel_directory, "optc-%s-%s.whl" % (version(), tag()))
    wheel.add("optc.pth", HERE + "\n")
    return wheel.close("optc-%s.dist-info" % version())


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """The metadata without a build: pip asks for it first."""
    info = "optc-%s.dist-info" % version()
    os.makedirs(os.path.join(metadata_directory, info))
    for name, text in info_files().items():
        with open(os.path.join(metadata_directory, info, name), "w") as f:
            f.write(text)
    return info


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_editable = get_requires_for_build_wheel
