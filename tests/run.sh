#!/bin/sh
# Every test, as `make test` runs them: parts that need nothing of each other, side by side in as many lanes as there are cores. What a part says is printed whole when
# it ends, with the seconds it took and those of the processor; the first failure stops (what runs beside it ends by itself).
#   BUILD  the build folder        CC, MAKE  as make has them        LANES  how many (default: one a core)
#   OPTC_QUICK=1  leaves out the sanitizers, the other compiler and most architectures        OPTC_ALL=1  nothing is thinned out: what takes long too
#   CI     not empty: a part that cannot be tried fails
# run.sh PART… runs those alone.
set -eu
export OPTC_TEST_CACHE="$PWD/$BUILD/test-cache"
export LC_ALL=C                        # files in the order that is expected
unset OPTC_CACHE OPTC_CACHE_BASE OPTC_CACHE_MAX OPTC_PATH OPTC_CC OPTC_CFLAGS OPTC_WORKSPACE 2>/dev/null || true
export OPTC_TUNE= OPTC_TUNE_SITE=      # not what somebody measured here
export OMP_WAIT_POLICY=passive         # lanes share the cores: a thread that waits leaves its own to others
export CK_TIMEOUT_MULTIPLIER="${CK_TIMEOUT_MULTIPLIER:-5}"       # timeouts are for what hangs, however busy the machine is
mkdir -p "$OPTC_TEST_CACHE" && chmod 700 "$OPTC_TEST_CACHE"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

. tests/nvrtc.sh
export have_nvrtc cuda_includes
"$BUILD/optc" doctor | sed -n '/^driver/,/^nvrtc/p'

# The longest first, so that no lane is left with one at the end.
parts="sanitizers:1:4 packages emulated-library sanitizers:2:4 emulated-rest:1:4 emulated-rest:2:4 sanitizers:3:4 suites:1:4 clang sanitizers:4:4 architectures suites:2:4 packages-all
       emulated-rest:3:4 suites:3:4 emulated-tools suites:4:4 packages-cpu emulated-rest:4:4 random python faults domains vectors command-line cuda install columns"
[ -z "${OPTC_QUICK:-}" ] || parts="packages packages-cpu suites:1:4 suites:2:4 suites:3:4 suites:4:4 emulated-rest:1:4 emulated-rest:2:4 emulated-rest:3:4 emulated-rest:4:4 emulated-tools architectures python faults domains vectors command-line cuda install columns"
[ $# = 0 ] || parts=$*
lanes=${LANES:-$(nproc 2>/dev/null || echo 2)}
began=$(date +%s)
export work
if sh tests/part.sh broken > "$work/broken" 2>&1; then
    echo "a part that fails in its middle was taken for one that passes:"
    cat "$work/broken"
    exit 1
fi
# 255 stops xargs: no part begins after one has failed.
printf '%s\n' $parts | xargs -P "$lanes" -I{} sh -c 'sh tests/part.sh {} || exit 255' || { echo; echo "failed, after $(($(date +%s) - began)) s"; exit 1; }
total=$(awk '{ s += $1 } END { print int(s + 0.5) }' "$work"/spent.*)
printf '\nall parts passed in %d s, %d s of the processor, %d lanes\n' $(($(date +%s) - began)) "$total" "$lanes"
