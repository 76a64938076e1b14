#!/bin/sh
# Runs the tests of `make test`: independent parts, in as many parallel lanes as there are cores.
# Each part's output is printed as a whole when the part ends, with its wall and CPU seconds. All
# parts run; the end lists the parts that failed. `run.sh PART…` runs only these parts.
#   BUILD         the build folder
#   CC, MAKE      as make passes them
#   LANES         the number of lanes (default: one per core)
#   OPTC_QUICK=1  skips the sanitizers with the second compiler, and most architectures
#   OPTC_ALL=1    no sampling: also the cases that take long
#   CI            if not empty, a part that cannot run here fails
set -eu
export OPTC_TEST_CACHE="$PWD/$BUILD/test-cache"
export LC_ALL=C                        # globs are sorted the same everywhere
unset OPTC_CACHE OPTC_CACHE_BASE OPTC_CACHE_MAX OPTC_PATH OPTC_CC OPTC_CFLAGS OPTC_WORKSPACE \
    2>/dev/null || true
export OPTC_TUNE=      # no results measured on this machine
export OMP_WAIT_POLICY=passive         # lanes share the cores: waiting threads release them
# timeouts only end tests that hang, however busy the machine is
export CK_TIMEOUT_MULTIPLIER="${CK_TIMEOUT_MULTIPLIER:-5}"
mkdir -p "$OPTC_TEST_CACHE" && chmod 700 "$OPTC_TEST_CACHE"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

. tests/parts/nvrtc.sh
export have_nvrtc cuda_includes
"$BUILD/optc" doctor | sed -n '/^driver/,/^nvrtc/p'

# The longest parts come first, so that no lane has a long part left at the end.
parts="sanitizers:1:4 packages emulated-library sanitizers:2:4 emulated-rest:1:4 emulated-rest:2:4 \
sanitizers:3:4
       suites:1:4 sanitizers:4:4 architectures suites:2:4 emulated-rest:3:4 suites:3:4 python
       emulated-tools suites:4:4 packages-cpu emulated-rest:4:4 faults random vectors command-line \
logs cuda verify install clang
       layout circles columns"
# domains builds the library once more, for a change of one table
[ -z "${OPTC_ALL:-}" ] || parts="packages-all $parts domains mutations"
[ -z "${OPTC_QUICK:-}" ] || parts=$(printf '%s\n' $parts | grep -v '^sanitizers\|^random')
[ $# = 0 ] || parts=$*
lanes=${LANES:-$(nproc 2>/dev/null || echo 2)}
began=$(date +%s)
export work
if sh tests/part.sh broken > "$work/broken" 2>&1 || [ -e "$work/passed.broken" ]; then
    echo "a part that fails in its middle was taken for one that passes:"
    cat "$work/broken"
    exit 1
fi
rm -f "$work"/*.broken
printf '%s\n' $parts | xargs -P "$lanes" -I{} sh tests/part.sh {} || true
echo
for part in $parts; do
    printf '%-20s %5s s CPU%s\n' "$part" "$(cat "$work/spent.$part" 2>/dev/null || echo '?')" \
        "$([ -e "$work/passed.$part" ] || echo '  FAILED')"
done
total=$(cat "$work"/spent.* | awk '{ s += $1 } END { print int(s + 0.5) }')
failed=$(for part in $parts; do [ -e "$work/passed.$part" ] || printf ' %s' "$part"; done)
if [ -n "$failed" ]; then
    printf '\nfailed:%s (make test PARTS="…" runs some alone); %d s, %d s CPU, %d lanes\n' \
        "$failed" $(($(date +%s) - began)) "$total" "$lanes"
    exit 1
fi
printf '\nall parts passed in %d s, %d s CPU, %d lanes\n' $(($(date +%s) - began)) "$total" "$lanes"
