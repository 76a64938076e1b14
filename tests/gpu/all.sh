#!/bin/sh
# Runs everything that needs a GPU: the suite (its cases in parallel), packages, compute-sanitizer,
# the benchmark against torch, and the benchmark of Shampoo and SOAP. compute-sanitizer, torch and
# NCCL are used if they are installed.
#   sh tests/gpu/all.sh [BUILD [PART…]]        after `make BUILD/gpu-test all`
#   PART           suite ship bench types matrix
#   OPTC_GPU_CASES='eigen:2 factors:8'        these cases of the suite, each in so many processes;
#                                             the seeds of random
#                  and the tools of sanitizer are processes too
#   OPTC_GPU_LIMIT seconds until a process of the suite is ended (default 300)
# What cannot run here prints a line `skipped: …`. The end counts these processes; with CI set they
# fail.
build=${1:-build}
[ $# = 0 ] || shift
parts=${*:-suite ship bench types matrix}
# CASE:SHARES. Most of the time goes to compilers, and a process compiles one kernel at a time.
cases=${OPTC_GPU_CASES:-sticky-error:1 library:9 compositions:2 graphs:6 launches:3 live-tuning:1
    memory:1 products:4 square-matrices:1 blocks:2 factors:6 eigen:2 codes:2 rounding:1 master:1
    shards:6 alike:5 nccl:1 functions:1 types:12 random:6 sanitizer:4}
# Mistakes are found before anything runs.
wrong() { echo "$*"; exit 2; }
for part in $parts; do
    case $part in suite | ship | bench | types | matrix) ;;
        *) wrong "there is no part '$part'" ;; esac
    case $part in suite) program=gpu-test ;; *) program=optc ;; esac
    [ -x "$build/$program" ] || wrong "there is no $build/$program: run make $build/gpu-test all"
done
for job in $cases; do
    expr "$job" : '[a-z][a-z-]*:[1-9][0-9]*$' > /dev/null ||
        wrong "OPTC_GPU_CASES: '$job' must be CASE:NUMBER"
done
export OPTC_TEST_CACHE=$build/test-cache OPTC_CACHE=${OPTC_CACHE:-$(realpath "$build")/cache} \
    OPTC_TUNE=
PATH=$PATH:/usr/local/cuda/bin         # compute-sanitizer, fatbinary
mkdir -p "$OPTC_TEST_CACHE" && chmod 700 "$OPTC_TEST_CACHE"
# The CPU's side of a test needs a BLAS: without one some rules take a hundred times as long. numpy
# contains one.
if [ -z "${OPTC_BLAS:-}" ] && ! ldconfig -p 2>/dev/null |
    grep -q 'lib\(openblas\|mkl_rt\|blis\)'; then
    OPTC_BLAS=$("${OPTC_PYTHON:-python3}" -c 'import glob, os, numpy
print(*glob.glob(os.path.dirname(numpy.__file__) + ".libs/libscipy_openblas*")[:1])' 2>/dev/null)
    [ -n "$OPTC_BLAS" ] && export OPTC_BLAS || unset OPTC_BLAS
fi
failed=0 skipped=0 began=$(date +%s)
say() { echo "== $1, at $(($(date +%s) - began)) s"; }
wait_all() {
    for job in "$@"; do
        pid=${job%%:*} name=${job#*:}
        wait "$pid" || { failed=$((failed + 1)); echo "FAILED: $name"; }
        if grep -q '^skipped: ' "$build/log.$name"; then
            skipped=$((skipped + 1))
            sed -n "s/^skipped: /SKIPPED: $name: /p" "$build/log.$name" | sort -u
        fi
        sed "s/^/[$name] /" "$build/log.$name" | tail -12
    done
}
# run_share CASE K N
run_share() {
    share=$2/$3 seed= tool= program=$build/gpu-test
    case $1 in
    # one seed per combination of types; NVRTC takes up to half a minute for such a spec
    random) share= seed=$2 ;;
    nccl) program="sh tests/gpu/nccl.sh $build" ;;         # finds the library of torch
    sanitizer)
        set -- $1 $(echo memcheck racecheck initcheck synccheck | cut -d' ' -f"$2")
        share= tool="compute-sanitizer --tool $2 --error-exitcode 9"
        command -v compute-sanitizer >/dev/null 2>&1 || { echo "skipped: $2 (no compute-sanitizer)"
            return 0; } ;;
    esac
    OPTC_TEST_SHARE=$share OPTC_FUZZ_SEED=$seed OPTC_FUZZ_SPECS=1 CK_RUN_CASE=$1 \
        CK_FORK=${tool:+no} timeout -k 10 "${OPTC_GPU_LIMIT:-300}" $tool $program
    rc=$?
    echo "exit status $rc after $(($(date +%s) - began)) s"
    return $rc
}

suite() {
    jobs=
    for job in $cases; do
        case=${job%:*} n=${job#*:}
        for k in $(seq "$n"); do
            run_share "$case" "$k" "$n" > "$build/log.$case-$k" 2>&1 &
            jobs="$jobs $!:$case-$k"
        done
    done
    wait_all $jobs
    say "suite and sanitizers done"
}

packages() {
    # measures times: nothing else runs
    sh tests/gpu/ship.sh "$build" > "$build/log.ship" 2>&1 &
    wait_all $!:ship
    say "packages done"
}

bench() {
    "$build/bench-release" --device cuda --suite --against torch > "$build/log.bench" 2>&1 ||
        failed=$((failed + 1))
    cat "$build/log.bench"
    say "benchmark done"
    # the bandwidth of this GPU is measured, stored, and not measured again
    "$build/optc" explain --full adamw --device cuda --measure > "$build/log.explain" 2>&1 &&
        "$build/optc" explain --full adamw >> "$build/log.explain" 2>&1
    [ "$(grep -c 'least .* (cuda:.*, measured' "$build/log.explain")" = 2 ] &&
        grep -q 'measure repeats it' "$build/log.explain" ||
        { failed=$((failed + 1)); echo "FAILED: explain's least time"; }
    grep -A1 '^  least' "$build/log.explain"
    ! grep -q '^ *bars .* misses ' "$build/log.bench" ||
        { failed=$((failed + 1)); echo "FAILED: a row of the benchmark misses its bar"; }
}

types() {
    sh tests/gpu/types.sh "$build" || { failed=$((failed + 1))
        echo "FAILED: 16 bits, or many tiny tensors"; }
    say "16 bits and tiny tensors done"
}

matrix() {
    sh tests/gpu/matrix_rules.sh "$build" shampoo soap shampoo-f32 soap-f32 ||
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
    esac
done
echo "$failed failed, $skipped skipped"
[ "$failed" = 0 ] && { [ "$skipped" = 0 ] || [ -z "${CI:-}" ]; }
