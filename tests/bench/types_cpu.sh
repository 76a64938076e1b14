#!/bin/sh
# Measures AdamW on the CPU in several sets of storage types: the share of the best streaming rate,
# usually that of scaling an array in place, timed in the same rounds. Rows have lower bounds. Takes
# about a minute.
#   sh tests/bench/types_cpu.sh [BUILD [OPTIONS of optc bench…]] after `make`, on an idle machine
set -eu
optc=${1:-build}/optc
[ $# = 0 ] || shift
failed=0
# row LEAST TYPES OPTIONS…
row() {
    least=$1 types=$2
    shift 2
    out=$("$optc" bench adamw --device cpu --types "$types" "$@")
    line=$(printf '%s\n' "$out" | grep ' adamw ' | head -1)
    share=$(printf '%s\n' "$line" | sed 's/[^%]*% *[0-9.]* *\([0-9]*\) %.*/\1/')
    printf '%-36s %3s %% of the best streaming rate (at least %s)\n' "$types" "$share" "$least"
    printf '%s\n' "$out" | grep -E '^  best streaming rate|machine was busy' || true
    [ "$share" -ge "$least" ] || { failed=1; echo "  misses its bar"; }
}
row 90 param=f32 "$@"
row 95 param=bf16,grad=bf16,state=bf16 "$@"
row 60 param=f32,state=q8 "$@"
row 60 param=bf16,grad=bf16,state=q8 "$@"
exit $failed
