#!/bin/sh
# The command line as scripts use it: exit codes, messages, files. OPTC names the program.
set -u
passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OPTC_CACHE="$work/cache"

# expect CODE PART ARGS…: the exit code, and PART somewhere in what was printed
expect() {
    code=$1 part=$2
    shift 2
    out=$("$OPTC" "$@" </dev/null 2>&1)
    got=$?
    if [ "$got" = "$code" ] && printf '%s' "$out" | grep -qF -- "$part"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'optc %s: exit %s (wanted %s), wanted "%s" in:\n%s\n' "$*" "$got" "$code" "$part" "$out" | head -20
    fi
}

expect 0 "usage" --help
expect 2 "usage"
for c in list check explain emit compile dump bench doctor new version; do
    expect 0 "optc $c" help "$c"
    expect 0 "optc $c" "$c" --help
done
expect 2 "did you mean 'check'" chek adamw
expect 2 "--wiht" check adamw --wiht clip
expect 0 "adafactor" list
expect 0 "lookahead" list --wrappers
expect 0 "Loshchilov" list adamw
expect 1 "nothing" list nothing
expect 0 "28 bytes per element" check adamw
expect 0 "ok" check adamw lamb 'adafactor'
expect 1 "adamx" check adamx lamb
expect 1 "No such file" check ./none.lua
expect 1 "Is a directory" check ./tests
expect 0 "3 passes" explain adamw --with 'clip(1),cautious,ema(0.999)'
expect 1 "no wrapper 'clop'" check adamw --with 'clop(1)'
expect 1 "outside the range" check adamw --with 'ema(2)'
expect 1 "expected wrapper" check adamw --with 'ema(0.9'
expect 1 "true or false" check adamw --options amsgrad=maybe
expect 0 "step_1_map" emit adamw --target c
expect 0 "__global__" emit lamb --target cuda
expect 2 "for which --arch" compile adamw
expect 2 "unknown target" emit adamw --target fortran
expect 0 "optc-ir 1" dump adamw --pass trace
expect 0 "; after fold" dump adamw --pass all
expect 2 "" dump adamw --pass nosuch
expect 0 "compiler" doctor
expect 0 "0.1.0" version
expect 0 "of best" bench adamw --size 64K --rounds 2
expect 0 "share_of_best" bench sgd --size 64K --rounds 2 --json
expect 2 "--size" bench adamw --size lots
cd "$work" || exit 1
if "$OPTC" doctor | grep '^nvrtc' | grep -q 'compiles for'; then
    expect 0 "sm_90: " compile adamw --arch sm_90 -o a.cubin
    expect 0 "bytes of PTX" compile adamw --arch sm_90 --ptx -o a.ptx
    [ "$(tr -d '\000' < a.ptx | wc -c)" = "$(wc -c < a.ptx)" ] && grep -q '^.target sm_90' a.ptx && passed=$((passed + 1)) || { failed=$((failed + 1)); echo "PTX is no text"; }
    expect 2 "does not compile for sm_7" compile adamw --arch sm_7
    expect 1 "adamx" compile adamx --arch sm_90
else
    OPTC_NO_NVRTC=1
    export OPTC_NO_NVRTC
    expect 1 "NVRTC was not found" compile adamw --arch sm_90
    unset OPTC_NO_NVRTC
fi
OPTC_CC=/no/such/cc
export OPTC_CC
expect 1 "reference evaluator" bench adamw --size 2M --with 'ema(0.5)' --rounds 1
unset OPTC_CC
expect 0 "mine.lua" new mine
expect 0 "ok" check mine.lua
expect 1 "exists" new mine
expect 0 "" new mine --force
"$OPTC" dump adamw --pass fold > a.ir && expect 0 "optc-ir 1" dump a.ir --pass fold
"$OPTC" dump a.ir --pass fold | cmp -s - a.ir && passed=$((passed + 1)) || { failed=$((failed + 1)); echo "IR does not read back as it was"; }
printf 'return optimizer { name = "x", step = function()\n  p = p - lrr * g\nend, hyper = { lr = 1 } }\n' > bad.lua
expect 1 "bad.lua:2: 'lrr' is not declared; did you mean 'lr'" check bad.lua
expect 1 "   2 | p = p - lrr * g" check bad.lua
"$OPTC" emit adamw > out.c 2>/dev/null && cc -c -Wall out.c -o out.o && passed=$((passed + 1)) || { failed=$((failed + 1)); echo "emitted C does not compile"; }
"$OPTC" emit adamw > /dev/full 2>/dev/null && { failed=$((failed + 1)); echo "a full disk went unnoticed"; } || passed=$((passed + 1))
"$OPTC" list | head -1 > /dev/null; passed=$((passed + 1))
# a check takes under 20 ms
t0=$(date +%s%N)
for i in 1 2 3 4 5 6 7 8 9 10; do "$OPTC" check came >/dev/null 2>&1; done
ms=$((($(date +%s%N) - t0) / 10000000))
[ "$ms" -lt 20 ] && passed=$((passed + 1)) || { failed=$((failed + 1)); echo "a check took $ms ms"; }
[ "$("$OPTC" list | tr -d '\n' | grep -c "$(printf '\033')")" = 0 ] && passed=$((passed + 1)) || { failed=$((failed + 1)); echo "colour on a pipe"; }

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
