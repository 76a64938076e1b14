#!/bin/sh
# Every test, as `make test` runs them. Each part says what it is; the first failure stops.
#   BUILD  the build folder        CC, MAKE  as make has them        OPTC_QUICK=1  leaves out the sanitizers, the other compiler and all GPU architectures but one
#   CI     not empty: a part that cannot be tried fails
set -eu
began=$(date +%s)
part() { printf '\n== %s, at %d s\n' "$*" $(($(date +%s) - began)); }
export OPTC_TEST_CACHE="$PWD/$BUILD/test-cache"
unset OPTC_CACHE OPTC_CACHE_BASE OPTC_CACHE_MAX OPTC_PATH OPTC_CC OPTC_CFLAGS 2>/dev/null || true
export OPTC_TUNE= OPTC_TUNE_SITE=      # not what somebody measured here
mkdir -p "$OPTC_TEST_CACHE" && chmod 700 "$OPTC_TEST_CACHE"

part "NVRTC and CUDA's headers"
. tests/nvrtc.sh
export have_nvrtc cuda_includes
"$BUILD/optc" doctor | sed -n '/^driver/,/^nvrtc/p'

part "suites"
"$BUILD/run-tests"

part "command line"
OPTC="$PWD/$BUILD/optc" sh tests/cli.sh

part "CUDA: declarations, and every rule for every architecture"
sh tests/cuda.sh

part "packages: made, checked, built by every compiler, held against the library"
sh tests/ship.sh

part "the GPU's suite on an emulated GPU"
sh tests/emu.sh

part "header in C++, install, and a program linked both ways"
sh tests/install.sh

[ -z "${OPTC_QUICK:-}" ] || exit 0

part "the address and undefined-behaviour sanitizers"
$MAKE --no-print-directory -s SAN=1 BUILD="$BUILD/san" OPT=-O1 "$BUILD/san/run-tests"
# Looking for leaks takes long and happens at every exit: once a suite, in one process, where a test is not meant to kill its own.
OPTC_FUZZ_SPECS=2 ASAN_OPTIONS=detect_leaks=0 "$BUILD/san/run-tests"
for suite in ops ir golden refs api tune_cpu cache cache_many tuned tuned_files; do
    CK_FORK=no CK_RUN_SUITE=$suite ASAN_OPTIONS=detect_leaks=1 "$BUILD/san/run-tests"
done

if command -v clang >/dev/null 2>&1 && [ "${CC##*/}" != clang ] && clang -fopenmp -x c -o /dev/null - </dev/null 2>/dev/null <<X
int main(void) { return 0; }
X
then
    part "clang, warnings as errors"
    $MAKE --no-print-directory -s CC=clang BUILD="$BUILD/clang" CFLAGS="-g -Werror" "$BUILD/clang/optc" "$BUILD/clang/run-tests"
    CK_RUN_SUITE=bits OPTC_FUZZ_SPECS=1 "$BUILD/clang/run-tests"
else
    echo "clang with OpenMP is not here: not tried"
    [ -z "${CI:-}" ] || exit 1
fi
