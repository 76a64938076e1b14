#!/bin/sh
# Makes the wheel of a release for this machine's architecture: sh tools/release.sh [FOLDER]
# (default dist) Run it in a clean checkout on the oldest distribution to support, for x86-64 and
# for aarch64: the wheel's tag names the glibc that it needs. The wheel contains GPU code of every
# rule and of the functions of matrices.
#   BUILD     the build folder (default build)
#   PYTHON    the Python that installs the wheel for a test (default python3)
#   GPUS      architectures of the GPU code (default: those below; empty: none)
#   GPU_CODE  a folder of packages from another machine's BUILD/python/gpu: GPU code does not depend
#             on the CPU
#   LIMIT     most bytes of a wheel (default 30,000,000)
# For another architecture, without a machine of it (tools/RELEASING.md has an example):
#   CC, HOSTCC    the cross compiler, and this machine's
#   EMULATOR      runs programs of that architecture, as in 'qemu-aarch64-static -L FOLDER'
#   ROOT          that FOLDER: libraries of the other system, and its Python
#   PYTHON_THERE  that Python (default: the newest ROOT/usr/bin/python3.*); GPUS is empty or
#                 GPU_CODE is given
set -eu
cd "$(dirname "$0")/.."
top=$PWD
out=${1:-dist} build=${BUILD:-build} python=${PYTHON:-python3} limit=${LIMIT:-30000000}
gpus=${GPUS-sm_80,sm_90,sm_100,sm_120}   # sm_86 and sm_89 run the code of sm_80
case $out in /*) ;; *) out=$PWD/$out ;; esac
# for commands in another folder
case $build in /*) whole=$build ;; *) whole=$PWD/$build ;; esac
emulator=${EMULATOR:-} root=${ROOT:-}
if [ -n "$emulator" ]; then
    [ -n "$root" ] || { echo "EMULATOR needs ROOT: see tools/RELEASING.md"; exit 1; }
    there=${PYTHON_THERE:-$(ls "$root"/usr/bin/ 2> /dev/null | grep -x 'python3\.[0-9]*' | sort -V \
| tail -1)}
    case $there in */*) ;; *) there=$root/usr/bin/$there ;; esac
    [ -x "$there" ] || { echo "no Python in '$root/usr/bin': see tools/RELEASING.md"; exit 1; }
    [ -z "$gpus" ] || [ -n "${GPU_CODE:-}" ] || {
        echo "GPUS= or GPU_CODE= is needed: see tools/RELEASING.md"; exit 1; }
fi
say() { printf '== %s\n' "$1"; }

# ship_code NAME ARGUMENT…: makes the package $gpu/NAME. No pipe: its exit code would hide that of
# ship
ship_code() {
    package=$1
    shift
    "$build/python/optc" ship "$@" --code-only --arch "$gpus" --name "$package" -o "$gpu/$package" \
        > "$build/python/ship.log" || { cat "$build/python/ship.log"; exit 1; }
    sed -n 1p "$build/python/ship.log"
}

say "library and command"
make --no-print-directory BUILD="$build" python "$build/fake/versioned/libcuda.so.1"
gpu=$build/python/gpu
if [ -n "${GPU_CODE:-}" ]; then
    [ ! "$GPU_CODE" -ef "$gpu" ] || {
        echo "GPU_CODE is the folder that is made: set BUILD to another one"; exit 1; }
    rm -rf "$gpu"
    cp -r "$GPU_CODE" "$gpu"
elif [ -n "$gpus" ]; then
    rm -rf "$gpu"                          # packages of an earlier run must not get into the wheel
    mkdir -p "$gpu"
    # the sets of types of f32 and bf16 models; RELEASING.md has what each adds
    for types in param=f32 param=bf16,grad=bf16,state=f32; do
        name=rules_${types#param=} name=${name%%,*}
        say "GPU code: every rule, $types, $gpus"
        ship_code "$name" --all-specs --types "$types"
    done
    say "GPU code: functions of matrices, $gpus"
    ship_code functions --functions all
else
    rm -rf "$gpu"
fi

say "wheel"
mkdir -p "$out"
wheel=$(BUILD=$build PYTHONPATH=runtime/python "$python" -c \
    'import sys, build_wheel; print(build_wheel.build_wheel(sys.argv[1]))' "$out" | tail -1)
bytes=$(wc -c < "$out/$wheel")
echo "$out/$wheel: $bytes bytes"
[ "$bytes" -le "$limit" ] || { echo "more than $limit bytes: name fewer GPUs"; exit 1; }

say "test in an empty environment"
try=$(mktemp -d)
trap 'rm -rf "$try"' EXIT
trap 'exit 130' INT TERM
# pip unpacks a wheel of another architecture only into a folder
if [ -n "$emulator" ]; then
    platform=${wheel#*-none-}
    "$python" -m pip install -q --no-index --disable-pip-version-check --only-binary :all: \
        --platform "${platform%.whl}" --target "$try/site" "$out/$wheel"
    run() { PYTHONPATH="$try/site" $emulator "$there" "$@"; }
else
    "$python" -m venv "$try/venv"
    "$try/venv/bin/python" -m pip install -q --no-index --disable-pip-version-check "$out/$wheel"
    run() { "$try/venv/bin/python" "$@"; }
fi
cd "$try"
site=$(run -c 'import optc; print(optc.__path__[0])')
command=$site/_bundled/optc
[ -n "$emulator" ] || command=$try/venv/bin/optc
$emulator "$command" check adamw
run -c '
import ctypes, optc, platform
p, g = ((ctypes.c_float * 3)(1, 2, 3) for _ in range(2))
rule = optc.Engine().compile("adamw")
rule.bind([([{"param": p, "grad": g, "shape": (3,)}], {})]).step()
print(optc.__version__, platform.machine(), "steps:", p[0] != 1)
assert p[0] != 1'
for package in "$site"/_bundled/gpu/*/; do
    [ ! -d "$package" ] || $emulator "$command" ship --check "$package" > check.log || {
        cat check.log; exit 1; }
done
# every rule and function without NVRTC, on a driver that loads code and computes nothing
for arch in $(cat "$whole/python/gpu/functions/manifest" 2> /dev/null |
    sed -n 's/^arch sm_\([0-9]*\) .*/\1/p'); do
    (
        export LD_LIBRARY_PATH="$whole/fake/versioned" FAKE_CUDA=works FAKE_ARCH="$arch"
        run "$top/tests/python/wheel_gpu.py"
    )
done
(cd "$out" && sha256sum "$wheel")
