#!/bin/sh
# What tuning is worth on the GPU at hand: a search within its budget against trying everything, and tuned steps against untuned ones.
#   sh tests/gpu/tune.sh [BUILD [RULE…]]        after `make`; about ten minutes for the four rules
set -eu
build=${1:-build}
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- adamw lion lamb adafactor
optc=$build/optc
work=${OUT:-$(mktemp -d)}
export OPTC_TUNE_SITE= OPTC_TUNE=
for rule in "$@"; do
    echo "== $rule, searched (60 s for all its stages and sizes)"
    "$optc" tune "$rule" --budget 60s --into "$work/searched"
    echo "== $rule, everything"
    "$optc" tune "$rule" --exhaustive --budget 1h --into "$work/everything"
done
echo "== the search's result over the best of all, by stage and size"
awk '/^optc-tune|^device|^#/ {next} {key = $1 " " $3 " " $4; for (i = 5; i <= NF; i++) {if ($i ~ /^ms=/) ms = substr($i, 4); if ($i ~ /^model=/) model = substr($i, 7)}; label = $0; sub(/.*# /, "", label)
     if (FNR == NR) {best[key] = ms / model} else {r = (ms / model) / best[key]; printf "%-30s %-5s %6.3f of its model, %6.3f of the best found by trying everything\n", label, $4, ms / model, r; if (r > worst) worst = r}}
     END {printf "the worst: %.3f\n", worst}' "$work/everything" "$work/searched"
echo "== steps at 1.5B, untuned and tuned"
"$optc" bench --device cuda --work gpt2-1.5b --rounds 7 "$@" | grep gpt2
OPTC_TUNE="$work/searched" "$optc" bench --device cuda --work gpt2-1.5b --rounds 7 "$@" | grep gpt2
