# Sourced by ship.sh, ship_library.sh and ship_tuned.sh: a work folder, and the functions of their
# checks. Ends the script if there is no NVRTC, with an error if CI is set.
#   BUILD         the build folder
#   have_nvrtc    as tests/parts/nvrtc.sh sets it
if [ -z "${have_nvrtc:-}" ]; then
    echo "skipped: packages (no NVRTC)"
    [ -z "${CI:-}" ] || exit 1
    exit 0
fi
passed=0 failed=0
top=$PWD optc=$PWD/$BUILD/optc lib=$PWD/$BUILD/liboptc.so fakes=$PWD/$BUILD/fake
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OPTC_CACHE="$work/cache" OPTC_NO_CUDA=1 RULES_NO_CUDA=1 ASAN_OPTIONS=detect_leaks=0
unset OPTC_CACHE_BASE OPTC_FATBINARY OPTC_NO_NVFATBIN RULES_FATBIN MAKEFLAGS MFLAGS 2>/dev/null

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); printf '%s\n' "$*" | head -20; }
# expect CODE PART COMMAND…: the command exits with CODE and its output contains PART ("": there is
# no output at all)
expect() {
    code=$1 part=$2
    shift 2
    out=$("$@" </dev/null 2>&1)
    got=$?
    if [ "$got" = "$code" ] && if [ -n "$part" ]; then printf '%s' "$out" |
        grep -qF -- "$part"; else [ -z "$out" ]; fi; then
        ok
    else
        bad "$*: exit $got (wanted $code), wanted \"$part\" in: $out"
    fi
}
skipped() { echo "skipped: $*"; [ -z "${CI:-}" ] || failed=$((failed + 1)); }
check() { if eval "$2"; then ok; else bad "$1"; fi; }
# job NAME COMMAND…: runs in the background; all_quiet waits for all jobs and expects success
# without output
job() {
    name=$1
    shift
    { "$@" </dev/null >"log.$name" 2>&1 || echo "exit $?" >>"log.$name"; } &
}
all_quiet() {
    wait
    for log in log.*; do
        if [ -s "$log" ]; then bad "$log: $(cat "$log")"; else ok; fi
        rm -f "$log"
    done
}
cd "$work" || exit 1
ln -s "$lib" liboptc.so.0
