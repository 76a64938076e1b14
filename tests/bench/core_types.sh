#!/bin/sh
# Compares the kernels of OpenBLAS that optc chooses with each core type chosen by hand: the mean
# CPU step of SOAP (over a period) and of Muon. Rounds run all of them in turn, and the next round
# begins with another one; the table has medians over the rounds. Takes about a minute on an idle
# machine; a busy one is named, and says nothing. Core types that this CPU or library does not have
# fall back to others: the table names the kernels that ran.
#   sh tests/bench/core_types.sh [BUILD [ROUNDS]] after `make`
#   CORES    core types (default: Prescott Nehalem Sandybridge Haswell Zen SkylakeX)
#   RULES    rules (default: soap muon)
#   SHAPE    options of optc bench (default: --shape 768x768 --tensors 2)
# Exits with 1 if optc's choice is over 10 % slower than the best core type.
set -eu
optc=${1:-build}/optc rounds=${2:-5} rules=${RULES:-soap muon}
cores="- ${CORES:-Prescott Nehalem Sandybridge Haswell Zen SkylakeX}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset OPENBLAS_CORETYPE

# once RULE CORE: appends "RULE CORE MS KERNELS BUSY"; "-" is optc's own choice
once() {
    rule=$1 core=$2
    set -- env
    [ "$core" = - ] || set -- env OPENBLAS_CORETYPE="$core"
    # shellcheck disable=SC2086
    if out=$("$@" "$optc" bench "$rule" --device cpu ${SHAPE:---shape 768x768 --tensors 2} \
        --rounds 1 --json 2>/dev/null); then
        printf '%s\n' "$out" | awk -v rule="$rule" -v core="$core" '
            match($0, /"ms": [0-9.]+/) { ms = substr($0, RSTART + 6, RLENGTH - 6) }
            match($0, /; [A-Za-z0-9_]+ kernels/) { kernels = substr($0, RSTART + 2, RLENGTH - 10) }
            /"busy": true/ { busy = 1 }
            END { print rule, core, ms, kernels == "" ? "?" : kernels, busy + 0 }' >> "$work/all"
    else
        echo "$core: this CPU cannot run it" >> "$work/failed"
    fi
}

k=0
while [ "$k" -lt "$rounds" ]; do
    for core in $cores; do
        for rule in $rules; do
            once "$rule" "$core"
        done
    done
    first=${cores%% *}
    cores="${cores#* } $first"
    k=$((k + 1))
done
[ ! -f "$work/failed" ] || sort -u "$work/failed"
sort -k1,1 -k2,2 -k3,3n "$work/all" | awk '
    function row() {
        if (n) {
            m = n % 2 ? ms[(n + 1) / 2] : (ms[n / 2] + ms[n / 2 + 1]) / 2
            printf "%-8s %-12s %-12s %8.2f ms  (%.2f to %.2f, %d rounds)\n", rule,
                core == "-" ? "optc" : core, kernels, m, ms[1], ms[n], n
            if (core == "-") own[rule] = m
            else if (!(rule in best) || m < best[rule]) { best[rule] = m; by[rule] = core }
        }
        n = 0
    }
    $1 " " $2 != last { row(); last = $1 " " $2 }
    { rule = $1; core = $2; ms[++n] = $3; kernels = $4; busy += $5 }
    BEGIN { print "rule     asked for    kernels        median" }
    END {
        row()
        for (r in own)
            if (r in best) {
                over = 100 * (own[r] / best[r] - 1)
                printf "%s: optc is %+.1f %% of the best core type (%s)\n", r, over, by[r]
                missed = missed || over > 10
            }
        if (busy) print "the machine was busy in " busy " of " NR " measurements: repeat this"
        exit missed
    }'
