#!/bin/sh
# What tuning is worth on the GPU at hand: a search within its budget against trying everything, and tuned steps against
# untuned ones.
#   sh tests/gpu/tune.sh [BUILD [RULE…]]        after `make`; about twelve minutes for the four rules
#   SIZES=2^28 STAGE=step_12 sh tests/gpu/tune.sh build adafactor        everything is tried at these sizes and of this
#       stage of a rule only, where time on a GPU is cut into pieces (the search is always for all)
set -eu
build=${1:-build}
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- adamw lion lamb adafactor
optc=$build/optc
work=${OUT:-$(mktemp -d)}
export OPTC_TUNE_SITE= OPTC_TUNE= OPTC_TUNE_BUILTIN=          # nobody's earlier answers
for rule in "$@"; do
    echo "== $rule, searched (60 s for all its stages and sizes)"
    "$optc" tune "$rule" --budget 60s --into "$work/searched"
    # What the search found is in use now: trying everything ends with a race against it, the column 'to used'.
    echo "== $rule, everything"
    OPTC_TUNE="$work/searched" "$optc" tune "$rule" --exhaustive ${SIZES:+--sizes "$SIZES"} ${STAGE:+--stage "$STAGE"} \
        --budget 1h --into "$work/everything" > "$work/said"
    cat "$work/said"
    cat "$work/said" >> "$work/said.all"
done
echo "== the best of all that there is over what the search found, or the model where it found nothing better"
awk '$8 == "GB/s" {printf "%-30s %-5s %6.1f %%\n", $1 " " $2, $4, $11; if ($11 < worst) worst = $11; n++}
    END {printf "%d searches; the worst: %.1f %%\n", n, worst}' "$work/said.all"
for size in 2^28 gpt2-124m gpt2-1.5b; do
    OPTC_TUNE="$work/searched" "$optc" bench --device cuda --work $size --rounds 7 --against untuned "$@" | grep "$size"
done
