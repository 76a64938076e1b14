#!/bin/sh
# Compares what this tree launches on the emulated GPU with what another commit launches (tests/log).
#   sh tests/parts/launch_log.sh BASE [CASE…] [RULE…]    BASE: a commit; cases and rules: launch-log --list
#   sh tests/parts/launch_log.sh --compare OLD NEW       two logs
# Prints the lines that were removed (-), added (+) or only moved (>), each with its case, rule, rank and stream, and
# exits with 1 if there are any. The logs stay in $BUILD/logs, and so does the library of BASE.
#   BUILD, CC, MAKE    the build folder, whose library must be up to date, and compilers
#   MOST               the most lines printed (default 60)
set -eu
BUILD=${BUILD:-build} CC=${CC:-cc} MAKE=${MAKE:-make}

compare() {
    cmp -s "$1" "$2" && { echo "the same $(grep -vc ' calls | ' "$2") launches"; return; }
    { diff "$1" "$2" || true; } | sed -n 's/^\([<>]\) /\1/p' > "$work/lines"
    awk '{ side = substr($0, 1, 1); op = substr($0, 2); order[NR] = op }
         side == "<" { old[op]++ } side == ">" { new[op]++ }
         END { for (i = 1; i <= NR; i++) {
                   op = order[i]
                   if (old[op] && new[op]) { print "> " op; old[op]--; new[op]-- }
                   else if (old[op]) { print "- " op; old[op]-- }
                   else if (new[op]) { print "+ " op; new[op]-- } } }' "$work/lines" > "$work/marked"
    head -n "${MOST:-60}" "$work/marked"
    awk -v most="${MOST:-60}" 'substr($0, 1, 1) == "-" { out++ } substr($0, 1, 1) == "+" { in_++ }
         substr($0, 1, 1) == ">" { moved++ } { at = substr($0, 3); sub(/ \|.*/, "", at); seen[at]++ }
         END { n = 0; for (c in seen) n++
               printf "%d lines differ in %d cases: %d removed, %d added, %d moved%s\n", NR, n, out, in_, moved,
                   (NR > most ? "; MOST=1000 prints more" : "") }' "$work/marked"
    return 1
}

# link TREE LIBRARY PROGRAM: the program against that tree's header and library
link() {
    $CC -std=c11 -D_GNU_SOURCE -O1 -I. -I"$1/runtime" tests/log/*.c "$2" -o "$3" ${LUA_LIBS:-$lua} -ldl -lm -fopenmp \
        -lpthread
}

# The library of a commit, in $BUILD/logs/COMMIT. Few of its rules are compiled: the GPU compiles all anew.
base_library() {
    base=$BUILD/logs/$commit
    [ ! -e "$base/build/liboptc.a" ] || return 0
    mkdir -p "$base"
    git archive "$commit" | tar -x -C "$base"
    CCACHE_NOHASHDIR=1 CCACHE_BASEDIR="$PWD/$base" $MAKE -s --no-print-directory -C "$base" BUILD=build ONLY=sgd \
        build/liboptc.a
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ "${1:-}" != --compare ] || { compare "$2" "$3"; exit; }
[ $# -gt 0 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2; }
commit=$(git rev-parse --short "$1^{commit}")
shift
lua=$(pkg-config --libs lua5.4 2>/dev/null || echo -llua5.4)
here=$PWD
. tests/parts/emulated.sh
mkdir -p "$BUILD/logs" "$work/kept" "$work/cache"
chmod 700 "$work/cache"
export EMU_KEPT="$work/kept" OPTC_CACHE="$work/cache" OPTC_CC=
unset OPTC_NO_CUDA OPTC_NO_NVRTC OPTC_CACHE_BASE 2>/dev/null || true
base_library
link "$BUILD/logs/$commit" "$BUILD/logs/$commit/build/liboptc.a" "$work/base"
link . "$BUILD/liboptc.a" "$work/new"
"$work/new" "$@" > "$BUILD/logs/new" 2> "$work/said" || { cat "$work/said"; exit 1; }
"$work/base" "$@" > "$BUILD/logs/base" 2> "$work/said" || { cat "$work/said"; exit 1; }
compare "$BUILD/logs/base" "$BUILD/logs/new"
