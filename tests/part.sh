#!/bin/sh
# Runs one part for tests/run.sh and prints its title and output as a whole when it ends.
#   work      folder for log.PART (output), spent.PART (CPU seconds) and, if the part passed, the
#             empty file passed.PART
#   PART:K:N  runs share K of N of a long part, so that machines with many cores can run the shares
#             in parallel
set -eu
part=$1 shares=1 ours=0
case $part in *:*:*) shares=${part##*:} ours=${part#*:} ours=$((${ours%:*} % shares)) ;; esac
share() { printf '%s\n' "$@" | awk -v n="$shares" -v k="$ours" 'NR % n == k'; }
of_them() { [ "$shares" = 1 ] || printf ', %s of %s' "$((ours ? ours : shares))" "$shares"; }

# cpu_seconds FILE: the CPU seconds of the commands that a shell had run when it wrote FILE with
# `times > FILE`. (A subshell, as in a pipe, counts only its own.)
cpu_seconds() { awk 'NR == 2 { gsub("[ms]", " ");
    printf "%.1f\n", $1 * 60 + $2 + $3 * 60 + $4 }' "$1"; }

every_suite=$(sed -n '/define SUITES/,/[^\\]$/p' tests/harness/suites.h | grep -o 'X([a-z_]*)' |
    sed 's/X(\(.*\))/\1/')
[ -n "$every_suite" ] || { echo "tests/harness/suites.h names no suites"; exit 1; }
without() { printf '%s\n' $every_suite | grep -vx "$(printf '%s\n' "$@")"; }

run_suite() { CK_RUN_SUITE=$suite OPTC_CACHE="$OPTC_TEST_CACHE" "$run" > "$work/suite.$part" 2>&1; }
# The leak check itself crashed at exit, which is no finding: seen twice, in suite state_words with
# an empty cache. All tests must have passed.
tracer_crashed() {
    grep -q 'LeakSanitizer has encountered a fatal error' "$work/suite.$part" &&
        grep -q '100%: Checks: [1-9]' "$work/suite.$part"
}

# suites NAME…: runs each suite in its own process with the program "$run". All suites run, also
# after a failure. Prints the CPU seconds of suites that took five or more.
suites() {
    bad=
    for suite; do
        times > "$work/times.$part"
        before=$(cpu_seconds "$work/times.$part")
        run_suite || { tracer_crashed && run_suite; } || bad="$bad $suite"
        cat "$work/suite.$part"
        grep -q 'Checks: [1-9]' "$work/suite.$part" || bad="$bad $suite(no checks)"
        times > "$work/times.$part"
        cpu_seconds "$work/times.$part" | awk -v was="$before" -v name="$suite" '
            $1 - was >= 5 { printf "%s: %.0f s CPU\n", name, $1 - was }'
    done
    [ -z "$bad" ] || { echo "failed suites:$bad"; return 1; }
}

# quick_rules: rules that suites compile are compiled at -O0 (OPTC_ALL: at -O3, the default).
# Results do not depend on the level: suite bits compares levels, and the library's own rules are at
# -O3 anyway. With -O1 all suites take a fifth longer, with -O3 several times as long. Tests about
# vector code unset OPTC_CFLAGS.
quick_rules() { [ -n "${OPTC_ALL:-}" ] || export OPTC_CFLAGS=-O0; }

# few N: runs N random specs. `make fuzz` runs many.
few() { [ -n "${OPTC_ALL:-}" ] || export OPTC_FUZZ_SPECS="${OPTC_FUZZ_SPECS:-$1}"; }
# thin N: from here on tests run one of N cases of each grid (thinned in tests/harness/help.h).
# OPTC_ALL: all of them.
thin() { [ -n "${OPTC_ALL:-}" ] || export OPTC_THIN=$1; }

# sanitizing_clang: whether clang builds programs with OpenMP and both sanitizers here
sanitizing_clang() {
    command -v clang >/dev/null 2>&1 && echo 'int main(void) { return 0; }' |
        clang -fopenmp -fsanitize=address,undefined -x c -o /dev/null - 2>/dev/null
}

# clang_warnings: clang parses the command's sources with its warnings as errors (OPTC_ALL: the
# tests' too). The sanitizers' build compiles the library with clang, but not the command, which no
# test runs under the sanitizers.
clang_warnings() {
    if ! sanitizing_clang; then
        echo "skipped: clang's warnings (no clang with OpenMP and sanitizers; Debian: clang \
libomp-dev libclang-rt-dev)"
        [ -z "${CI:-}" ]
        return
    fi
    sources="tools/*.c tools/*/*.c"
    [ -z "${OPTC_ALL:-}" ] ||
        sources="$sources tests/unit/*.c tests/harness/*.c tests/gpu/*.c tests/faults/*.c"
    clang $($MAKE --no-print-directory -s print-flags) -Werror -fsyntax-only $sources
}

# The sanitizers' build of the library is also the build by a second compiler, with its warnings as
# errors. clang compiles this in three quarters of gcc's time. The compiled rules and the tests are
# not instrumented, so they are taken from the plain build; suite bits compiles rules with both
# compilers. -Wno-pass-failed: clang does not vectorise instrumented loops. OPTC_ALL uses the plain
# build's compiler: gcc checks pointer overflows too.
sanitizers() {
    echo "the address and undefined-behaviour sanitizers, by clang, warnings as errors$(of_them)"
    sanitize="SAN=1 BUILD=$BUILD/san RULES_FROM=$BUILD/rules TESTS_FROM=$BUILD/obj OPT=-O0"
    flags=-g1
    [ -n "${OPTC_ALL:-}" ] || ! sanitizing_clang ||
        flags="-g1 -Werror -Wno-pass-failed" sanitize="$sanitize CC=clang"
    mkdir -p "$BUILD/san"
    flock "$BUILD/san/lock" $MAKE --no-print-directory -s $sanitize CFLAGS="$flags" \
        "$BUILD/san/run-tests"
    run="$BUILD/san/run-tests"
    # detect_stack_use_after_return is off: newer compilers enable it by default, and it takes half
    # as long again. strstr is not intercepted: the interceptor measures the whole text at every
    # call, two thirds of the suite emit.
    export OPTC_FUZZ_SPECS=2
    options=detect_stack_use_after_return=0
    [ -n "${OPTC_ALL:-}" ] || options=$options:intercept_strstr=0
    thin 64
    quick_rules
    # These mostly run the rules' or the tests' own code, which is not instrumented here. api, core
    # and others step rules too, and code_states has states in codes. math allocates no memory.
    skip="bits refs ops math"
    [ -n "${OPTC_ALL:-}" ] ||
        skip="$skip codes code_quality range squares type_grid launch_model search compile_workers
        fuzz authors factor_rules shard_traffic storage_types merge_stages tuned"
    # A fork takes 9 ms under the address sanitizer, and the leak check runs at every exit. So a
    # suite is one process (CK_FORK=no), except those whose tests need a process of their own. Tests
    # of the suites in `leaky` do not free all they allocate themselves.
    forked="large thread_barrier hostile cuda compile_workers checkpoint_files profile"
    leaky="wrappers blocks"
    # LLVM's OpenMP keeps its threads' memory until the end
    echo "leak:libomp.so" > "$BUILD/san/leaks"
    export LSAN_OPTIONS="suppressions=$PWD/$BUILD/san/leaks:print_suppressions=0"
    CK_FORK=no ASAN_OPTIONS=$options:detect_leaks=1 suites $(share $(without $skip $forked $leaky))
    CK_FORK=no ASAN_OPTIONS=$options:detect_leaks=0 suites $(share $leaky)
    ASAN_OPTIONS=$options:detect_leaks=0 suites $(share $(printf '%s\n' $forked |
        grep -vx "$(printf '%s\n' $skip)"))
}

go() {
    run="$BUILD/run-tests"
    case ${part%%:*} in
    suites) echo "suites$(of_them)"; quick_rules; thin 6; suites $(share $(without fuzz)) ;;
    random) echo "random specs"; few 9; suites fuzz ;;
    command-line)
        echo "command line"
        export OPTC="$PWD/$BUILD/optc" FAKES="$PWD/$BUILD/fake"
        sh tests/parts/cli.sh
        sh tests/parts/help.sh
        sh tests/parts/explain.sh
        sh tests/parts/manual.sh
        sh tests/parts/race.sh ;;
    cuda) echo "CUDA: declarations, tuning on a fake GPU"; sh tests/parts/cuda.sh declared ;;
    verify) echo "proofs of emitted GPU code"; sh tests/parts/verify.sh ;;
    architectures) echo "every rule and every architecture"; sh tests/parts/cuda.sh architectures ;;
    packages)
        echo "packages: made, checked, built by every compiler, compared with the library"
        sh tests/parts/ship.sh
        sh tests/parts/ship_tuned.sh ;;
    packages-cpu)
        echo "packages for the CPU alone; functions of matrices in packages"
        sh tests/parts/ship_cpu.sh
        sh tests/parts/ship_functions.sh ;;
    packages-all) echo "the whole library in a package"; sh tests/parts/ship_library.sh ;;
    emulated-library) echo "the GPU's suite on an emulated GPU: library"
        sh tests/parts/emu.sh library ;;
    emulated-rest)
        echo "the GPU's suite on an emulated GPU: the rest$(of_them)"
        thin 24
        few 1
        sh tests/parts/emu.sh $(share products blocks factors compositions eigen launches \
            square-matrices memory codes rounding master random live-tuning graphs types alike \
            shards nccl functions) ;;
    logs)
        echo "launches of the emulated GPU: two logs of this tree, and broken ones"
        sh tests/parts/launch_log.sh --sample ;;
    mutations) echo "broken kernels that the emulated GPU must find"; sh tests/parts/mutations.sh ;;
    emulated-tools) echo "tuning and packages on an emulated GPU"; sh tests/parts/emu.sh tools ;;
    layout) echo "the shape of the source tree"; sh tests/parts/layout.sh ;;
    circles) echo "circles of calls in the runtime"; sh tests/parts/circles.sh ;;
    vectors) echo "every loop over elements is vectorised"; sh tests/parts/vectors.sh ;;
    domains) echo "domains are rows, in any order"; sh tests/parts/domains.sh ;;
    install)
        echo "header in C++, install, a program linked both ways; the README's snippets"
        sh tests/parts/install.sh
        sh tests/parts/readme.sh ;;
    columns) echo "no line over 100 columns"; sh tests/parts/columns.sh ;;
    faults) echo "calls that fail once: a sample"; sh tests/parts/faults.sh quick ;;
    python) echo "the Python package: over the library, as a wheel, in torch's loops"
        sh tests/parts/python.sh ;;
    sanitizers) sanitizers ;;
    clang) echo "clang's warnings"; clang_warnings ;;
    broken) echo "a part that fails in its middle"; false; true ;;
    *) echo "there is no part '$part'"; return 1 ;;
    esac
}

if [ -n "${inside:-}" ]; then
    unset inside
    go
    exit
fi
began=$(date +%s)
rc=0
# A separate shell: on the left of || the shell ignores -e and would continue after a failure.
inside=yes sh "$0" "$part" > "$work/log.$part" 2>&1 || rc=$?
[ -d "$work" ] || exit 1        # make test was interrupted
times > "$work/times.$part"
cpu_seconds "$work/times.$part" > "$work/spent.$part"
until mkdir "$work/printing" 2>/dev/null; do [ -d "$work" ] || exit 1; sleep 0.1; done
[ $rc != 0 ] || : > "$work/passed.$part"
printf '\n== %s: %d s, %.0f s CPU%s\n' "$(head -n 1 "$work/log.$part")" \
    $(($(date +%s) - began)) "$(cat "$work/spent.$part")" "$([ $rc = 0 ] || echo ": FAILED")"
sed -e 1d -e '/:100%: Checks: 0,/d' "$work/log.$part"
rmdir "$work/printing"
exit $rc
