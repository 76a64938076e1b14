#!/bin/sh
# CUDA without a GPU: our declarations against CUDA's headers, and every rule through NVRTC. What cannot be tried here is named; under CI that fails.
#   BUILD  the build folder        have_nvrtc, cuda_includes  as tests/nvrtc.sh left them        OPTC_QUICK=1  one architecture only
set -eu
skip() {
    echo "skipped: $*"
    [ -z "${CI:-}" ] || exit 1
}

# Each row of runtime/cuda.h must pass, and each row that is wrong on purpose must be refused.
cxx=$(command -v g++ || command -v clang++ || true)
if [ -z "$cuda_includes" ]; then
    skip "our declarations of CUDA against its headers (cuda.h, cudaTypedefs.h or nvrtc.h is not here)"
elif [ -z "$cxx" ]; then
    skip "our declarations of CUDA against its headers (neither g++ nor clang++ is here)"
else
    check() { "$cxx" -std=c++17 -fsyntax-only $cuda_includes "$@" tests/cuda/headers.cc; }
    check
    wrong=1
    while ! check -DWRONG=$wrong 2>/dev/null; do
        wrong=$((wrong + 1))
    done
    [ "$wrong" -gt "$(grep -c 'WRONG == ' tests/cuda/headers.cc)" ] || { echo "wrong row $wrong of tests/cuda/headers.cc passed"; exit 1; }
    echo "declarations as in CUDA's headers, $((wrong - 1)) wrong ones refused"
fi

# The command finds a driver where the loader does.
LD_LIBRARY_PATH="$BUILD/fake/versioned" FAKE_CUDA=one "$BUILD/optc" doctor | grep -q 'cuda:0: Fake GPU' || { echo "a driver on LD_LIBRARY_PATH was not found"; exit 1; }

if [ -n "$have_nvrtc" ]; then
    "$BUILD/compile-all" "$(nproc)" ${OPTC_QUICK:+1}
else
    skip "every rule for every architecture; equal source gives equal machine code; NVRTC's words for broken source (no NVRTC)"
fi
