#!/bin/sh
# Runs everything that needs a GPU: the suite (its cases in parallel), packages, compute-sanitizer, the benchmark
# against torch, and the benchmark of Shampoo and SOAP. compute-sanitizer and torch are used if they are installed.
#   sh tests/gpu/all.sh [BUILD [PART…]]        after `make BUILD/gpu-test all`
#   PART: suite ship bench types matrix
build=${1:-build}
[ $# = 0 ] || shift
parts=${*:-suite ship bench types matrix}
export OPTC_TEST_CACHE=$build/test-cache OPTC_CACHE=${OPTC_CACHE:-$PWD/$build/cache} OPTC_TUNE= OPTC_TUNE_SITE=
mkdir -p "$OPTC_TEST_CACHE" && chmod 700 "$OPTC_TEST_CACHE"
failed=0 began=$(date +%s)
say() { echo "== $1, at $(($(date +%s) - began)) s"; }
wait_all() {
    for job in "$@"; do
        pid=${job%%:*} name=${job#*:}
        wait "$pid" || { failed=$((failed + 1)); echo "FAILED: $name"; }
        sed "s/^/[$name] /" "$build/log.$name" | tail -12
    done
}
suite() {
    jobs=
    # CASE:SHARES. Most of the time goes to compilers, and a process compiles one kernel at a time.
    for job in sticky-error:1 library:4 compositions:2 graphs:6 launches:3 live-tuning:1 memory:1 products:2 \
        square-matrices:1 blocks:2 factors:4 eigen:2 codes:2 rounding:1 master:1 shards:6 alike:4 nccl:1 types:12; do
        case=${job%:*} n=${job#*:}
        for k in $(seq "$n"); do
            OPTC_TEST_SHARE=$k/$n CK_RUN_CASE=$case "$build/gpu-test" > "$build/log.$case-$k" 2>&1 &
            jobs="$jobs $!:$case-$k"
        done
    done
    # One seed per combination of types. Each runs in its own process, since NVRTC takes up to half a minute for such a
    # spec.
    for seed in 1 2 3 4 5 6; do
        OPTC_FUZZ_SEED=$seed OPTC_FUZZ_SPECS=1 CK_RUN_CASE=random "$build/gpu-test" > "$build/log.random-$seed" 2>&1 &
        jobs="$jobs $!:random-$seed"
    done
    if command -v compute-sanitizer >/dev/null 2>&1; then
        for tool in memcheck racecheck initcheck synccheck; do
            CK_FORK=no CK_DEFAULT_TIMEOUT=0 CK_RUN_CASE=sanitizer timeout 300 compute-sanitizer --tool $tool \
                --error-exitcode 9 "$build/gpu-test" > "$build/log.$tool" 2>&1 &
            jobs="$jobs $!:$tool"
        done
    fi
    wait_all $jobs
    say "suite and sanitizers done"
}

packages() {
    sh tests/gpu/ship.sh "$build" > "$build/log.ship" 2>&1 &       # measures times: nothing else runs
    wait_all $!:ship
    say "packages done"
}

bench() {
    "$build/optc" bench --device cuda --suite --against torch > "$build/log.bench" 2>&1 || failed=$((failed + 1))
    cat "$build/log.bench"
    say "benchmark done"
    # the bandwidth of this GPU is measured, stored, and not measured again
    "$build/optc" explain --full adamw --device cuda --measure > "$build/log.explain" 2>&1 &&
        "$build/optc" explain --full adamw >> "$build/log.explain" 2>&1
    [ "$(grep -c 'least .* (cuda:.*, measured' "$build/log.explain")" = 2 ] &&
        grep -q 'measure repeats it' "$build/log.explain" ||
        { failed=$((failed + 1)); echo "FAILED: explain's least time"; }
    grep -A1 '^  least' "$build/log.explain"
    ! grep -q '^ *misses ' "$build/log.bench" ||
        { failed=$((failed + 1)); echo "FAILED: a row of the benchmark misses its bar"; }
}

types() {
    sh tests/gpu/types.sh "$build" || { failed=$((failed + 1)); echo "FAILED: 16 bits, or many tiny tensors"; }
    say "16 bits and tiny tensors done"
}

matrix() {
    sh tests/gpu/matrix_rules.sh "$build" shampoo-f32 soap-f32 ||
        { failed=$((failed + 1)); echo "FAILED: Shampoo or SOAP"; }
    say "Shampoo and SOAP done"
}

for part in $parts; do
    case $part in
    suite) suite ;;
    ship) packages ;;
    bench) bench ;;
    types) types ;;
    matrix) matrix ;;
    *) echo "there is no part '$part'"; exit 2 ;;
    esac
done
echo "$failed parts failed"
[ "$failed" = 0 ]
