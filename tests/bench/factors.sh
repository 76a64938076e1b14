#!/bin/sh
# Benchmarks factors of batches on the CPU against NumPy's LAPACK in f64, and a Shampoo step on
# GPT-2 124M against the same in NumPy. Rounds alternate; figures are medians of the ratios.
#   sh tests/bench/factors.sh [BUILD [THREADS [PART…]]] after `make`; OPTC_PYTHON: an interpreter
#   with NumPy PART: batches (two minutes), shampoo (some minutes)
# Shampoo's period has 50 steps; each of three rounds times two of them. Both sides stagger their
# blocks, so two steps contain two fiftieths of the roots.
build=${1:-build}
threads=${2:-2}
[ $# -lt 2 ] && shift $# || shift 2
failed=0
batches() {
    for what in power eigh qr chol; do
        for work in "64 64" "256 8" "512 4" "${OPTC_FACTORS_LARGE:-768} 2"; do
            side=${work% *} count=${work#* }
            "$build/optc" bench tests/bench/factor.lua --options "what=$what" --type f64 \
                --device cpu --threads "$threads" --shape "${side}x$side" --tensors "$count" \
                --rounds 15 --against numpy --json > "$build/log.bench-factors" || {
                failed=$((failed + 1)); continue; }
            ratio=$(sed -n 's/.*"ratio": \([0-9.]*\).*/\1/p' "$build/log.bench-factors")
            ms=$(sed -n 's/^ *"ms": \([0-9.e+-]*\),.*/\1/p' "$build/log.bench-factors")
            how=$(sed -n 's/.*float64, \([^"]*\)".*/\1/p' "$build/log.bench-factors")
            verdict=$(awk "BEGIN {print (${ratio:-0} >= 0.9) ? \"holds\" : \"misses\"}")
            [ "$verdict" = holds ] || failed=$((failed + 1))
            printf \
                '%-6s %3d of %4d^2  %9.3f ms  NumPy (%s) takes %.2f of that: %s its bar of 0.9\n' \
                "$what" "$count" "$side" "${ms:-0}" "$how" "${ratio:-0}" "$verdict"
        done
    done
}
shampoo() {
    "$build/optc" bench shampoo --device cpu --threads "$threads" --work gpt2-124m --rounds \
        3 --steps 2 --against numpy $FACTORS_ARGS || failed=$((failed + 1))
}
for part in ${*:-batches shampoo}; do
    case $part in batches) batches ;; shampoo) shampoo ;; *) echo "there is no part '$part'"
        exit 2 ;; esac
done
echo "$failed rows failed"
[ "$failed" = 0 ]
