#!/bin/sh
# A domain is one row of one table, and no code depends on the order of the rows. In a copy of the
# sources the rows of rows x rows and cols x cols move to the front. A rule with such states is
# stepped and compared with plain loops and the evaluator; its CUDA is compiled if NVRTC is
# available.
#   BUILD     the build folder, whose compiled rules are used
#   CC, MAKE  as make passes them
set -eu
here=$PWD
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cp -R gen runtime templates tools specs Makefile LICENSE "$tree"
moved='X\((ROWS2|COLS2),'
rows=$(grep -E "$moved" gen/abi/domains.h)
grep -Ev "$moved" gen/abi/domains.h | rows=$rows awk '{ print } /^#define SMALL_DOMAINS/ {
    print ENVIRON["rows"] }' \
    > "$tree/gen/abi/domains.h"
[ "$(sed -n '/^#define SMALL_DOMAINS/{n;p;n;p;}' "$tree/gen/abi/domains.h" |
    grep -Ec "$moved")" = 2 ] ||
    { echo "the rows did not move"; exit 1; }
touched=$(for part in gen runtime templates tools specs Makefile
    do diff -rq $part "$tree/$part" || :; done)
[ -n "$touched" ] && [ "$(printf '%s\n' "$touched" | wc -l)" = 1 ] ||
    { echo "not one file was touched: $touched"; exit 1; }
${MAKE:-make} -C "$tree" --no-print-directory -s ${CC:+CC="$CC"} BUILD=out OPT=-O0 CFLAGS= \
    RULES_FROM="$here/$BUILD/rules" out/optc out/liboptc.a
cd "$tree"
${CC:-cc} -std=c11 -Wall -Wextra -Iruntime "$here/tests/domains/domains_run.c" out/liboptc.a \
    $(pkg-config --libs lua5.4 2>/dev/null || echo -llua5.4) -ldl -lm -fopenmp -lpthread -o out/run
# nothing that large is kept beside the states
out/optc dump "$here/tests/domains/scratch.lua" --pass plan > out/plan
[ "$(grep -Ec ' (rows|cols) +matrix' out/plan)" = 2 ] ||
    { cat out/plan; echo "one stage for each of the two domains would do"; exit 1; }
out/run "$here/tests/domains/scratch.lua"
if [ -d "$here/$BUILD/emu" ] && command -v ${CXX:-g++} >/dev/null 2>&1; then
    (. "$here/tests/parts/emulated.sh" && out/run "$here/tests/domains/scratch.lua" cuda)
else
    echo "skipped: the rule on the emulated GPU (it is not built, or there is no C++ compiler)"
fi
refuses() {
    if said=$(out/optc check "$here/tests/domains/$1.lua" 2>&1); then
        echo "$1 was not refused"
        exit 1
    fi
    case $said in *"$2"*) ;; *) echo "$1: $said"; exit 1 ;; esac
}
refuses mixed "col"
out/optc emit --target cuda "$here/tests/domains/scratch.lua" >/dev/null
if [ -n "${have_nvrtc:-}" ]; then
    out/optc compile "$here/tests/domains/scratch.lua" --arch sm_90 -o out/scratch.cubin >/dev/null
else
    echo "skipped: the rule's CUDA (no NVRTC)"
fi
echo "two domains by a row each of gen/abi/domains.h, ahead of all others"
