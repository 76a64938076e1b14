#!/bin/sh
# Measures what tuning gains on this GPU: a search within its budget against an exhaustive search,
# and tuned steps against untuned ones. Takes about twelve minutes for the four rules.
#   sh tests/gpu/tune.sh [BUILD [RULE…]]        after `make`
#   SIZES=2^28 STAGE=step_12 sh tests/gpu/tune.sh build adafactor
# The second form limits the exhaustive search to these sizes and this stage, for machines that lend
# a GPU for short times. The budgeted search always covers everything.
set -eu
build=${1:-build}
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- adamw lion lamb adafactor
optc=$build/optc
work=${OUT:-$(mktemp -d)}
export OPTC_TUNE= OPTC_TUNE_BUILTIN=          # no earlier results
for rule in "$@"; do
    echo "== $rule, searched (60 s for all its stages and sizes)"
    "$optc" tune "$rule" --budget 60s --into "$work/searched"
    # OPTC_TUNE: the searched results are in use. The exhaustive search ends with a race against
    # them (column 'to used').
    echo "== $rule, everything"
    OPTC_TUNE="$work/searched" "$optc" tune "$rule" --exhaustive ${SIZES:+--sizes "$SIZES"} \
        ${STAGE:+--stage "$STAGE"} --budget 1h --into "$work/everything" > "$work/said"
    cat "$work/said"
    cat "$work/said" >> "$work/said.all"
done
echo "== the best of all that there is over what the search found, or the model where it found \
nothing better"
awk '$8 == "GB/s" {printf "%-30s %-5s %6.1f %%\n", $1 " " $2, $4, $11; if ($11 < worst) worst = $11;
    n++}
    END {printf "%d searches; the worst: %.1f %%\n", n, worst}' "$work/said.all"
for size in 2^28 gpt2-124m gpt2-1.5b; do
    OPTC_TUNE="$work/searched" "$optc" bench --device cuda --work $size --rounds 7 --against \
        untuned "$@" | grep "$size"
done
