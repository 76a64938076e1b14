#!/bin/sh
# Compares what this tree launches on the emulated GPU with what another commit launches.
#   sh tests/parts/launch_log.sh BASE [CASE…] [RULE…]   BASE: a commit; names: --list
#   sh tests/parts/launch_log.sh --compare OLD NEW      two logs
#   sh tests/parts/launch_log.sh --sample               two logs of this tree, and broken ones
# Prints the lines that were removed (-), added (+) or only moved (>), each with its case, rule,
# rank and stream, and exits with 1 if there are any. The logs stay in $BUILD/logs, and so does the
# library of BASE.
#   BUILD, CC, MAKE    the build folder, whose library must be up to date; compiler and make
#   MOST               the most lines printed (default 60)
#   ORDER=any          launches of a stream may be in another order
#   SPECS=own          BASE's own specs; by default both libraries compile this tree's
set -eu
BUILD=${BUILD:-build} CC=${CC:-cc} MAKE=${MAKE:-make} MOST=${MOST:-60}

# in_order LOG: its lines, sorted and without numbers of unnamed memory if any order is right
in_order() {
    [ "${ORDER:-}" = any ] || { cat "$1"; return; }
    sed 's/#[0-9][0-9]*/#/g' "$1" | LC_ALL=C sort
}

compare() {
    in_order "$1" > "$work/old"
    in_order "$2" > "$work/now"
    if cmp -s "$work/old" "$work/now"; then
        echo "the same $(grep -vc ' calls | ' "$2") launches"
        return
    fi
    { diff "$work/old" "$work/now" || true; } | sed -n 's/^\([<>]\) /\1/p' > "$work/lines"
    awk '{ side = substr($0, 1, 1); op = substr($0, 2); order[NR] = op }
         side == "<" { old[op]++ } side == ">" { new[op]++ }
         END { for (i = 1; i <= NR; i++) {
                   op = order[i]
                   if (old[op] && new[op]) { print "> " op; old[op]--; new[op]-- }
                   else if (old[op]) { print "- " op; old[op]-- }
                   else if (new[op]) { print "+ " op; new[op]-- } } }' "$work/lines" \
        > "$work/marked"
    head -n "$MOST" "$work/marked"
    awk -v most="$MOST" '
        { mark[substr($0, 1, 1)]++; at = substr($0, 3); sub(/ \|.*/, "", at); seen[at]++ }
        END { n = 0; for (c in seen) n++
              printf "%d lines differ in %d cases: %d removed, %d added, %d moved%s\n", NR, n,
                  mark["-"], mark["+"], mark[">"],
                  (NR > most ? "; MOST=1000 prints more" : "") }' "$work/marked"
    return 1
}

wraps=-Wl,--wrap=now_ms,--wrap=waited_ms,--wrap=pthread_create,--wrap=pthread_join
# link TREE LIBRARY PROGRAM: the program against that tree's header and library
link() {
    $CC -std=c11 -D_GNU_SOURCE -I. -I"$1/runtime" tests/log/*.c "$2" -o "$3" $wraps \
        ${LUA_LIBS:-$lua} -ldl -lm -fopenmp -lpthread
}

# The library of a commit, in $BUILD/logs/COMMIT. The GPU needs none of the rules compiled for CPUs.
base_library() {
    base=$BUILD/logs/$commit
    [ ! -e "$base/build/liboptc.a" ] || return 0
    mkdir -p "$base"
    git archive "$commit" | tar -x -C "$base"
    CCACHE_NOHASHDIR=1 CCACHE_BASEDIR="$PWD/$base" $MAKE -s --no-print-directory -C "$base" \
        BUILD=build ONLY=sgd build/liboptc.a
}

# log PROGRAM TO NAME…
log() {
    program=$1 to=$2
    shift 2
    "$program" "$@" > "$to" 2> "$work/said" || { cat "$work/said"; exit 1; }
    grep -q ' | ' "$to" || { cat "$work/said"; echo "nothing was logged"; exit 1; }
}

# breaks HOW MARK: a kernel that is not run, or runs late, is reported with its rule and stage
breaks() {
    EMU_LOG_BREAKS=$1
    export EMU_LOG_BREAKS
    log "$work/new" "$work/broken" captured adamw_clip_cautious_ema
    unset EMU_LOG_BREAKS
    line="captured adamw_clip_cautious_ema | rank 0 stream 1 | step 2 | step_[0-9]"
    if compare "$work/whole" "$work/broken" > "$work/report" ||
        ! grep -q "^[$2] $line" "$work/report"; then
        cat "$work/report"
        echo "a launch that is left out or late ($1) is not in the report"
        exit 1
    fi
}

sample() {
    log "$work/new" "$work/one" plain captured ranks_2 adamw_clip_cautious_ema muon_two_steps
    log "$work/new" "$work/two" plain captured ranks_2 adamw_clip_cautious_ema muon_two_steps
    compare "$work/one" "$work/two"
    ! grep 'failed:\|by signal' "$work/one" || exit 1
    grep '^captured adamw_clip_cautious_ema ' "$work/one" > "$work/whole"
    breaks "drop 11" -
    breaks "swap 11" ">"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ "${1:-}" != --compare ] || { compare "$2" "$3"; exit; }
[ $# -gt 0 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2; }
lua=$(pkg-config --libs lua5.4 2>/dev/null || echo -llua5.4)
here=$PWD
. tests/parts/emulated.sh
mkdir -p "$BUILD/logs" "$work/kept" "$work/cache"
chmod 700 "$work/cache"
export EMU_KEPT="$work/kept" OPTC_CACHE="$work/cache" OPTC_CC=
unset OPTC_NO_CUDA OPTC_NO_NVRTC OPTC_CACHE_BASE 2>/dev/null || true
link . "$BUILD/liboptc.a" "$work/new"
[ "$1" != --list ] || { "$work/new" --list; exit; }
[ "$1" != --sample ] || { sample; exit; }
commit=$(git rev-parse --short "$1^{commit}")
shift
base_library
[ "${SPECS:-}" = own ] || export OPTC_PATH="$here/specs"
link "$BUILD/logs/$commit" "$BUILD/logs/$commit/build/liboptc.a" "$work/base"
log "$work/new" "$BUILD/logs/new" "$@"
log "$work/base" "$BUILD/logs/base" "$@"
compare "$BUILD/logs/base" "$BUILD/logs/new"
