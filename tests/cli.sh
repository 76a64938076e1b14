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
for c in list check explain emit compile ship dump bench cache doctor new version; do
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
expect 0 "of best" bench adamw --device cpu --size 64K --rounds 2
expect 0 "share_of_best" bench sgd --device cpu --size 64K --rounds 2 --json
expect 2 "--size" bench adamw --size lots
expect 2 "--device knows cpu, cuda, cuda:N and best, not 'foo'" bench adamw --device foo
expect 2 "not 'cuda:1x'" bench adamw --device cuda:1x
expect 2 "did you mean 'gpt2-124m'" bench adamw --work gpt2-124
expect 2 "'--work list' describes them" bench adamw --work nosuch
expect 2 "exclude" bench adamw --size 1M --shape 3x3
expect 2 "has its own tensors" bench adamw --work 2^28 --shape 3x3
expect 2 "has its own tensors" bench --suite --tensors 3
expect 2 "has its own workloads and rules" bench --suite adamw
expect 2 "has its own workloads and rules" bench --suite --work 2^28
expect 2 "knows torch" bench adamw --against jax
expect 1 "--size must be that or more" bench adamw --device cpu --work small5000 --size 100
# GPT-2's published counts of parameters
expect 0 "148 tensors,   124439808 elements" bench --work list
expect 0 "580 tensors,  1557611200 elements" bench --work list
expect 0 "gpt2-124m at 65" bench adamw adafactor --device cpu --work gpt2-124m --size 64K --rounds 1
expect 0 "gpt2-1.5b at 58" bench --device cpu --suite --size 64K --rounds 1
OPTC_NO_CUDA=1
export OPTC_NO_CUDA
expect 1 "no CUDA driver" bench adamw --device cuda
expect 1 "'--device cpu' runs on the CPU" bench adamw --device cuda:0
expect 0 "cpu: " bench adamw --device best --size 64K --rounds 1
unset OPTC_NO_CUDA
# a peer that does not start, refuses, answers nonsense or goes away costs only its column
peer() { printf '#!/bin/sh\n%s\n' "$1" > "$work/peer" && chmod +x "$work/peer"; }
OPTC_PYTHON="$work/peer"
export OPTC_PYTHON
expect 0 "did not start it (OPTC_PYTHON" bench sgd --device cpu --size 64K --rounds 1 --against torch
peer 'echo none no torch here'
expect 0 "did not start it: no torch here" bench sgd --device cpu --size 64K --rounds 1 --against torch
peer 'echo ready torch 9; while read -r w i r; do case $w in open) echo ok fused SGD;; step) echo 250 250000;; *) echo ok;; esac; done'
expect 0 "250 ms" bench sgd --device cpu --size 64K --rounds 1 --against torch
peer 'echo ready torch 9; while read -r w i r; do case $w in open) echo none no memory;; *) echo ok;; esac; done'
expect 0 "sgd: nothing: no memory" bench sgd --device cpu --size 64K --rounds 1 --against torch
peer 'echo ready torch 9; while read -r w i r; do case $w in open) echo ok fused SGD;; step) echo none out of memory;; *) echo ok;; esac; done'
expect 0 "gave up sgd: out of memory" bench sgd --device cpu --size 64K --rounds 1 --against torch
peer 'echo ready torch 9; read -r w; echo ok fused SGD; read -r w; exit'
expect 0 "stopped answering at sgd" bench sgd --device cpu --size 64K --rounds 2 --against torch
unset OPTC_PYTHON
if command -v python3 >/dev/null 2>&1; then
    "$OPTC" bench adamw 'lion+clip(1)' --device cpu --work gpt2-124m --size 64K --rounds 1 --json | python3 -m json.tool >/dev/null && passed=$((passed + 1)) || { failed=$((failed + 1)); echo "bench --json is not JSON"; }
fi
cd "$work" || exit 1
# the cache: empty, one entry, damaged, mended, pruned, cleared; strangers' files stay
check() { if eval "$2"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "$1"; fi; }
OPTC_CACHE="$work/own-cache"
export OPTC_CACHE
expect 0 "nothing is kept yet" cache ls
expect 0 '"count": 0' cache ls --json
check "looking made the folder" '[ ! -e "$OPTC_CACHE" ]'
expect 2 "ls, verify, prune or clear" cache
expect 2 "did you mean 'verify'" cache verfy
expect 2 "one action at a time" cache ls clear
expect 2 "clear does not take --older" cache clear --older 30d
expect 2 "ls does not take --delete" cache ls --delete
expect 2 "must be a time" cache prune --older soon --dir .
expect 2 "--max" cache prune --max lots
expect 1 "No such file" cache ls --dir ./none
expect 2 "names no folder" cache ls --dir ''
printf 'return optimizer { name = "mine", hyper = { lr = 0.1 }, step = function() p = p - lr * g * 3 end }\n' > three.lua
for type in f32 f64; do "$OPTC" bench three.lua --size 64K --rounds 1 --type $type >/dev/null 2>&1; done
expect 0 "mine, f32 for " cache ls
expect 0 "2 entries, " cache ls
expect 0 '"rule": "mine"' cache ls --json
expect 0 "2 entries, 0 damaged" cache verify
expect 0 "2 entries, " doctor
entry=$(ls "$OPTC_CACHE"/*.so | head -1)
echo mine > "$OPTC_CACHE/notes.so"
ln -s "$work/three.lua" "$OPTC_CACHE/00000000000000000000000000000000.so"
printf 'X' | dd of="$entry" bs=1 seek=5000 conv=notrunc 2>/dev/null
expect 1 "$(basename "$entry"): its checksum differs" cache verify
expect 1 "1 damaged" cache verify
expect 1 "1 damaged, 1 removed" cache verify --delete
check "the damaged entry is still there" '[ ! -e "$entry" ]'
expect 0 "1 entry, 0 damaged" cache verify
expect 0 "0 entries removed" cache prune --older 1d
touch -d '40 days ago' "$OPTC_CACHE"/????????????????????????????????.so
expect 0 "40 d" cache ls
expect 0 "1 entry removed" cache prune --older 30d
"$OPTC" bench three.lua --size 64K --rounds 1 >/dev/null 2>&1
expect 0 "1 entry removed" cache prune --max 1K
"$OPTC" bench three.lua --size 64K --rounds 1 >/dev/null 2>&1
touch "$OPTC_CACHE/.00000000000000000000000000000000.abc123"
expect 0 "and 1 unfinished" cache ls
expect 0 "1 entry removed" cache clear
expect 0 "0 entries removed" cache clear
check "a file that is not the cache's was removed" '[ -s "$OPTC_CACHE/notes.so" ] && [ -L "$OPTC_CACHE/00000000000000000000000000000000.so" ] && [ -s "$work/three.lua" ]'
check "a leftover outlived clear" '[ ! -e "$OPTC_CACHE/.00000000000000000000000000000000.abc123" ]'
chmod g+w "$OPTC_CACHE"
expect 0 "can be written by its group" doctor
expect 0 "this folder is not used" cache ls
OPTC_CACHE="$work/cache"
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
expect 1 "reference evaluator" bench adamw --device cpu --size 2M --with 'ema(0.5)' --rounds 1
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
