#!/bin/sh
# Checks that compilers vectorise every pass over elements of every rule of the library, for both
# architectures: the compiler's report lists each loop marked OPTC_EACH. Also rules outside the
# library (many arrays, other types) and a package.
#   BUILD  the build folder
#   CC     the compiler
set -eu
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
emit() { "$BUILD/optc" emit "$@" --target c > "$at/$file.c"; }
# The rules that are built in, and of the others without products every twelfth (OPTC_ALL: all).
# Rules with products have loops like those of muon, psgd and shampoo; of the built-in types AdamW
# has all loops. Two with a power are left out: gcc vectorises padam only with AVX, and ftrl not on
# aarch64. dadapt_adam has choices by a value of the group, which gcc vectorises only without
# threading of jumps.
has_products() { grep -q '^  products = ' "specs/$1.lua"; }
n=0
for file in $("$BUILD/optc" list --names | grep -v /); do
    case $file in
    muon | psgd | shampoo | dadapt_adam) emit "$file"; continue ;;
    padam) continue ;;
    esac
    ! has_products "$file" || continue
    if ! grep -q "\"$file\"}" runtime/library/rule/spec_find.c; then
        n=$((n + 1))
        [ -n "${OPTC_ALL:-}" ] || [ $((n % 12)) = 1 ] || continue
    fi
    [ $file != ftrl ] || continue
    emit "$file"
done
for types in bf16 all_bf16 q8 bf16_q8; do cp "$BUILD/rules/adamw_$types.c" "$at"; done
# ema is left out: gcc does not vectorise its exchange beside so many arrays for x86-64 without AVX
file=many emit 'ademamix+clip(1)+cautious+lookahead(5,0.5)'
file=halves emit adamw --type bf16
file=rounded emit adamw --type bf16sr --state-type f16sr
file=all_halves emit lion --type f16 --state-type f16
file=doubles emit lamb --type f64
flags=$("$BUILD/prebuild" --flags 0 | sed 's/ -march=[^ ]*//')

# Prints "line function" for each loop over elements. Small stages have few values and may call
# functions.
loops() {
    awk '/^(OPTC_CLONES )?static void / { name = $0; sub(/\(.*/, "", name); sub(/.* /, "", name) }
         each && name ~ /_(map|tile|band)/ { print NR, name }
         { each = /^ *OPTC_EACH$/ }' "$1"
}

# one_of N FILE…: the library's loops are alike, so a part of the rules is enough (OPTC_ALL: all)
one_of() { n=$1; shift; [ -n "${OPTC_ALL:-}" ] && echo "$@" || printf '%s\n' "$@" |
    awk -v n="$n" 'NR % n == 1'; }

# tried REPORT-FLAG REPORT-TEXT COMPILER…
tried() {
    tell=$1 told=$2 n=0
    shift 2
    for source in $files; do
        "$@" $flags $tell -c -o /dev/null "$source" > "$source.said" 2>&1 || {
            cat "$source.said"; exit 1; }
        grep -E ":[0-9]+: $told" "$source.said" | sed 's/^[^:]*:\([0-9]*\):.*/\1/' |
            sort -u > "$source.done"
        loops "$source" > "$source.loops"
        [ -s "$source.loops" ] || { echo "$source has no loop over elements"; exit 1; }
        while read -r line name; do
            n=$((n + 1))
            grep -qx "$line" "$source.done" || {
                echo "not vectorised: $name of ${source##*/}, by $*"; exit 1; }
        done < "$source.loops"
    done
    echo "$n loops over elements are vectorised by $*"
}
# -fno-ipa-icf: gcc merges identical stages and would report only one of them.
gcc_like() { tried "-fopt-info-vec-optimized -fno-ipa-icf" "optimized: loop vectorized" "$@"; }
clang_like() { tried -Rpass=loop-vectorize "remark: vectorized loop" "$@"; }

own="$at/many.c $at/halves.c $at/all_halves.c $at/doubles.c"
rules=$(ls "$at"/*.c | grep -vxF "$(printf '%s\n' $own)")
# the second vector level and the second compiler get fewer, without the longest
fewer=$rules
[ -n "${OPTC_ALL:-}" ] || fewer=$(printf '%s\n' $rules | grep -v '/psgd\.c$')
every="$(one_of 2 $rules) $own" some="$(one_of 8 $fewer) $own"

works() { command -v "$1" >/dev/null 2>&1 && echo 'int x;' |
    "$@" -x c -c -o /dev/null - 2>/dev/null; }
for cc in "${CC:-cc}" x86_64-linux-gnu-gcc aarch64-linux-gnu-gcc; do
    works $cc || continue
    case $($cc --version) in *clang*) continue ;; esac
    target=$($cc -dumpmachine)
    case " ${seen:-} " in *" $target "*) continue ;; esac
    seen="${seen:-} $target"
    files=$every
    case $target in x86_64*) gcc_like $cc -march=x86-64; files=$some; gcc_like $cc \
        -march=x86-64-v3 ;; *) gcc_like $cc ;; esac
done
files=$some
if works clang; then
    # the other architecture is tested where CI runs on it; OPTC_ALL=1 tests both
    here=$(uname -m)
    for target in $([ -n "${OPTC_ALL:-}" ] && echo x86_64 aarch64 || echo "$here"); do
        works clang --target=$target-linux-gnu && clang_like clang --target=$target-linux-gnu
    done
else
    echo "skipped: clang (there is none)"
fi

# A package sets its own flags by attributes: its user gives only -O2.
mkdir "$at/package"
"$BUILD/optc" ship 'adamw+clip(1)' $([ -z "${OPTC_ALL:-}" ] ||
    echo adan adafactor) -o "$at/package/rules" > /dev/null
sh tests/parts/quick_runtime.sh "$at/package/rules/rules.c" > "$at/package/rules/quick.c"
files="$at/package/rules/quick.c" flags="-O2 -w"
case $(${CC:-cc} --version) in *clang*) clang_like ${CC:-cc} ;; *) gcc_like ${CC:-cc} ;; esac
! works clang || clang_like clang

# The read benchmark of `optc bench` keeps its sums in registers: there are no stores between the
# loads. With an array of sums it stored and read at half the rate.
cat > "$at/reads.awk" <<'A'
/^sum_any:/ { in_it = 1 }
/\.cfi_endproc/ { in_it = 0 }
in_it && /^\.L/ { loop = $1; stores = loads = 0 }
in_it && (/\tst[rp]\t[qd]/ || /\tv?mov[aud]p[sd]\t%[xyz]mm[0-9]+, [^%]/) { stores++ }
in_it && (/\tld[rp]\tq/ || /\tv?addps\t[^%].*%[xyz]mm/ ||
    /\tv?mov[aud]ps\t[^%].*%[xyz]mm/) { loads++ }
in_it && loads >= 4 && /\tb[.a-z]*\t\.L|\tj[a-z]+\t\.L/ {
    if (stores) bad = 1; else good = 1; loads = 0 }
END { exit bad || !good }
A
reads() {
    "$@" -std=c11 -D_GNU_SOURCE -O2 -fopenmp -I. -Iruntime -S -o "$at/stream.s" tools/bench/stream.c
    awk -f "$at/reads.awk" "$at/stream.s" || {
        echo "the yardstick for reading stores as it goes, by $*"; exit 1; }
    echo "the yardstick for reading only reads, by $*"
}
reads ${CC:-cc}
