#!/bin/sh
# The suite of tests/gpu without a GPU: emitted CUDA is compiled as C++ and its threads are run one by one (tests/emu). What it cannot show: speed, races, what a real
# compiler makes of it, and the end of a context.
#   BUILD  the build folder        OPTC_QUICK=1  fewer rules
set -eu
if ! command -v "${CXX:-g++}" >/dev/null 2>&1; then
    echo "skipped: the GPU's suite on an emulated GPU (no C++ compiler)"
    [ -z "${CI:-}" ] || exit 1
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OPTC_TEST_SMALL=1 EMU_DIR="$PWD/tests/emu" LD_LIBRARY_PATH="$PWD/$BUILD/emu" OPTC_NVRTC="$PWD/$BUILD/emu" OPTC_TEST_CACHE="$work" OPTC_TUNE= OPTC_TUNE_SITE=
unset OPTC_NO_CUDA OPTC_NO_NVRTC OPTC_CACHE_BASE 2>/dev/null || true
cases="library compositions graphs memory launches"
[ -z "${OPTC_QUICK:-}" ] || cases="sanitized graphs memory"
for case in $cases; do
    CK_RUN_CASE=$case "$BUILD/gpu-test" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    grep -v ':100%: Checks: 0,' "$work/log"
done
