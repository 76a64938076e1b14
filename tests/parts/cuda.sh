#!/bin/sh
# Tests CUDA without a GPU: optc's declarations against CUDA's headers, tuning on a fake GPU, and
# every rule through NVRTC. Tests that cannot run here are named; with CI set that fails.
#   BUILD                      the build folder
#   have_nvrtc, cuda_includes  as tests/parts/nvrtc.sh sets them
#   OPTC_QUICK=1               one architecture only
#   OPTC_ALL=1                 every rule for every architecture
# `cuda.sh architectures` runs only the compilation of the rules; `cuda.sh declared` runs everything
# else.
set -eu
what=${1:-declared architectures}
skip() {
    echo "skipped: $*"
    [ -z "${CI:-}" ] || exit 1
}

declared() {
# Each row of runtime/library/compile/nvrtc.h must pass, and each row that is wrong on purpose must
# be refused.
cxx=$(command -v g++ || command -v clang++ || true)
if [ -z "$cuda_includes" ]; then
    skip "our declarations of CUDA against its headers (cuda.h, cudaTypedefs.h or nvrtc.h is not \
here)"
elif [ -z "$cxx" ]; then
    skip "our declarations of CUDA against its headers (neither g++ nor clang++ is here)"
else
    check() { "$cxx" -std=c++17 -fsyntax-only -I. $cuda_includes "$@" tests/cuda/headers.cc; }
    check
    wrong=1
    while ! check -DWRONG=$wrong 2>/dev/null; do
        wrong=$((wrong + 1))
    done
    [ "$wrong" -gt "$(grep -c 'WRONG == ' tests/cuda/headers.cc)" ] ||
        { echo "wrong row $wrong of tests/cuda/headers.cc passed"; exit 1; }
    echo "declarations as in CUDA's headers, $((wrong - 1)) wrong ones refused"
fi

# The command finds the driver on the loader's path.
LD_LIBRARY_PATH="$BUILD/fake/versioned" FAKE_CUDA=one "$BUILD/optc" doctor |
    grep -q 'cuda:0: Fake GPU' ||
    { echo "a driver on LD_LIBRARY_PATH was not found"; exit 1; }

# All of tuning except the device: real kernels are compiled, and a fake GPU times them. It is
# fastest with 256 threads, which the model does not choose.
if [ -n "$have_nvrtc" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    tune() { LD_LIBRARY_PATH="$BUILD/fake/versioned" FAKE_CUDA=works OPTC_NO_GRAPHS=1 \
        OPTC_CACHE="$work/cache" OPTC_TUNE="$work/tune" "$BUILD/optc" tune sgd --device cuda \
        --sizes 2^12,2^14 --log "$work/tried" "$@"; }
    tune --trials 40 > "$work/said" 2>&1 || { cat "$work/said"; exit 1; }
    [ "$(grep -c '^map .* threads=256 ' "$work/tune")" = 2 ] ||
        { cat "$work/said" "$work/tune"; echo "the search did not find what is fastest"; exit 1; }
    LD_LIBRARY_PATH="$BUILD/fake/versioned" FAKE_CUDA=works OPTC_TUNE="$work/tune" \
        "$BUILD/optc" tune show --stage sgd | grep -q 'threads' || {
        echo "no result is shown"; exit 1; }
    # an older result that claims a larger gain is replaced by a new measurement
    sed -i 's/ms=[^ ]* model=[^ ]*/ms=0.1 model=9/' "$work/tune"
    tune --trials 4 --again > "$work/said" 2>&1 && ! grep -q 'model=9 ' "$work/tune" ||
        { cat "$work/said" "$work/tune"; echo "an older result was not replaced"; exit 1; }
    echo "tuning on a fake GPU: $(grep -c . "$work/tried") trials"

    # Many folds in one stage, in f64 where the stage is over matrices: it uses as many threads as
    # shared memory allows.
    for n in 4 14 40; do
        { echo "return optimizer { name = 'many', doc = 'many folds', view = 'last', hyper = {lr = \
0.1},"
          echo "step = function() p = p - lr * g end, matrix = function()"
          echo "  local s = slice.mean(g * g)"
          echo "  p = p - lr * g / (1"
          for k in $(seq $n); do echo "    + sum(sqrt(s + $k))"; done
          echo ") end }"; } > "$work/many.lua"
        OPTC_CACHE= "$BUILD/optc" compile "$work/many.lua" --arch sm_90 -o "$work/many.cubin" > \
            "$work/said" 2>&1 ||
            { cat "$work/said"; echo "a list of matrices with $n folds does not build"; exit 1; }
    done
    rm -rf "$work"
    trap - EXIT
fi

}

# Each rule is compiled for three architectures: the oldest, the newest and one of the others in
# rotation, so that each architecture gets several rules. The package of the whole library covers
# sm_90. OPTC_ALL: each rule for each architecture.
architectures() {
if [ -n "$have_nvrtc" ]; then
    if [ -n "${OPTC_QUICK:-}" ]; then
        "$BUILD/compile-all" 1 1
    elif [ -n "${OPTC_ALL:-}" ]; then
        "$BUILD/compile-all" 1
    else
        "$BUILD/compile-all" 1 thin
    fi
else
    skip "every rule for every architecture; equal source gives equal machine code; messages of \
NVRTC (no NVRTC)"
fi
}

for part in $what; do $part; done
