#!/bin/sh
# One part of tests/run.sh, which see: its name and what it says, printed whole when it ends.
#   work  a folder for its output (log.PART), its CPU seconds (spent.PART) and, if it passed, an empty file
#       (passed.PART)
# PART:K:N  the K-th of N shares of a long part: machines with many cores take them side by side.
set -eu
part=$1 shares=1 ours=0
case $part in *:*:*) shares=${part##*:} ours=${part#*:} ours=$((${ours%:*} % shares)) ;; esac
share() { printf '%s\n' "$@" | awk -v n="$shares" -v k="$ours" 'NR % n == k'; }
of_them() { [ "$shares" = 1 ] || printf ', %s of %s' "$((ours ? ours : shares))" "$shares"; }

every_suite=$(sed -n '/define SUITES/,/[^\\]$/p' tests/harness/suites.h | grep -o 'X([a-z_]*)' | sed 's/X(\(.*\))/\1/')
without() { printf '%s\n' $every_suite | grep -vx "$(printf '%s\n' "$@")"; }

# suites NAME…: each in a process of its own, on what "$run" names; all of them, also after one that fails
suites() {
    bad=
    for suite; do
        CK_RUN_SUITE=$suite "$run" || bad="$bad $suite"
    done
    [ -z "$bad" ] || { echo "failed suites:$bad"; return 1; }
}

# Random specs have targets of their own (make fuzz): a few of them here.
few() { [ -n "${OPTC_ALL:-}" ] || export OPTC_FUZZ_SPECS="${OPTC_FUZZ_SPECS:-$1}"; }
# thin N: from here on one of N cases that the plain build runs whole (tests/harness/help.h)
thin() { [ -n "${OPTC_ALL:-}" ] || export OPTC_THIN=$1; }

# The rules' code is the very code of the plain build, which has no checks in it: it is taken from there. What tests do
# themselves takes longer to compile than to run.
sanitizers() {
    echo "the address and undefined-behaviour sanitizers$(of_them)"
    mkdir -p "$BUILD/san"
    flock "$BUILD/san/lock" $MAKE --no-print-directory -s SAN=1 BUILD="$BUILD/san" RULES_FROM="$BUILD/rules" OPT=-O0 \
        CFLAGS=-g1 "$BUILD/san/run-tests"
    run="$BUILD/san/run-tests"
    # Stacks that have returned: newer compilers look at them unasked, which takes half as long again, and of a spec's
    # second. Looking for leaks takes long and happens at every exit: once a suite, in one process, where a test is not
    # meant to kill its own.
    export OPTC_FUZZ_SPECS=2
    thin 5
    leaks="ir golden api tune_cpu cache cache_many tuned tuned_files"
    CK_FORK=no ASAN_OPTIONS=detect_stack_use_after_return=0:detect_leaks=1 suites $(share $leaks)
    # bits, refs and ops step the rules' code, which has no checks here, as api, core and steps do too; math has no
    # memory.
    ASAN_OPTIONS=detect_stack_use_after_return=0:detect_leaks=0 suites $(share $(without $leaks bits refs ops math))
}

clang_there() {
    command -v clang >/dev/null 2>&1 && [ "${CC##*/}" != clang ] && echo 'int main(void) { return 0; }' |
        clang -fopenmp -x c -o /dev/null - 2>/dev/null
}

clang_too() {
    if clang_there; then
        echo "clang, warnings as errors"
        # What it warns of does not depend on how it optimizes; the rules have flags of their own. Of the rules it
        # compiles those whose bits are compared: thin 3 takes every third.
        only= dir=$BUILD/clang-all
        [ -n "${OPTC_ALL:-}" ] ||
            dir=$BUILD/clang only="$("$BUILD/optc" list --names | grep -v / | awk 'NR % 3 == 1' | tr '\n' ' ')"
        $MAKE --no-print-directory -s CC=clang BUILD="$dir" OPT=-O0 CFLAGS=-Werror ONLY="$only" "$dir/optc" \
            "$dir/run-tests"
        thin 3
        CK_RUN_SUITE=bits "$dir/run-tests"
    else
        echo "skipped: clang, warnings as errors (no clang with OpenMP, or it is the compiler)"
        [ -z "${CI:-}" ]
    fi
}

go() {
    run="$BUILD/run-tests"
    case ${part%%:*} in
    suites) echo "suites$(of_them)"; suites $(share $(without fuzz)) ;;
    random) echo "random specs"; few 9; suites fuzz ;;
    command-line)
        echo "command line"
        export OPTC="$PWD/$BUILD/optc" FAKES="$PWD/$BUILD/fake"
        sh tests/cli.sh
        sh tests/explain.sh
        sh tests/manual.sh ;;
    cuda) echo "CUDA: declarations, tuning on a fake GPU"; sh tests/cuda.sh declared ;;
    architectures) echo "every rule and every architecture"; sh tests/cuda.sh architectures ;;
    packages) echo "packages: made, checked, built by every compiler, held against the library"; sh tests/ship.sh ;;
    packages-cpu) echo "packages for the CPU alone"; sh tests/ship_cpu.sh ;;
    packages-all) echo "the whole library in a package"; sh tests/ship.sh all ;;
    emulated-library) echo "the GPU's suite on an emulated GPU: library"; sh tests/emu.sh library ;;
    emulated-rest)
        echo "the GPU's suite on an emulated GPU: the rest$(of_them)"
        thin 5
        few 1
        sh tests/emu.sh $(share products blocks factors compositions eigen launches squares memory random \
            live graphs) ;;
    emulated-tools) echo "tuning and packages on an emulated GPU"; sh tests/emu.sh tools ;;
    layout) echo "the shape of the source tree"; sh tests/layout.sh ;;
    vectors) echo "every loop over elements is vectorised"; sh tests/vectors.sh ;;
    domains) echo "domains are rows, in any order"; sh tests/domains.sh ;;
    install)
        echo "header in C++, install, a program linked both ways; the README's snippets"
        sh tests/install.sh
        sh tests/readme.sh ;;
    columns) echo "no source line over 120 columns"; sh tests/columns.sh ;;
    faults) echo "calls that fail once: a sample"; sh tests/faults.sh quick ;;
    python) echo "the Python package: over the library, as a wheel, in torch's loops"; sh tests/python.sh ;;
    sanitizers) sanitizers ;;
    clang) clang_too ;;
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
# A shell of its own: in one before || the shell would go on after what fails, whatever -e says.
inside=yes sh "$0" "$part" > "$work/log.$part" 2>&1 || rc=$?
[ -d "$work" ] || exit 1        # make test was interrupted
times > "$work/times.$part"
awk 'NR == 2 { gsub("[ms]", " "); printf "%.1f\n", $1 * 60 + $2 + $3 * 60 + $4 }' "$work/times.$part" \
    > "$work/spent.$part"
until mkdir "$work/printing" 2>/dev/null; do [ -d "$work" ] || exit 1; sleep 0.1; done
[ $rc != 0 ] || : > "$work/passed.$part"
printf '\n== %s: %d s, %.0f s CPU%s\n' "$(head -n 1 "$work/log.$part")" \
    $(($(date +%s) - began)) "$(cat "$work/spent.$part")" "$([ $rc = 0 ] || echo ": FAILED")"
sed -e 1d -e '/:100%: Checks: 0,/d' "$work/log.$part"
rmdir "$work/printing"
exit $rc
