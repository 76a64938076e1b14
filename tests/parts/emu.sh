#!/bin/sh
# Runs the GPU suite without a GPU: emitted CUDA is compiled as C++, and its threads run one after
# another (tests/emu). This shows neither speed, races, nvcc's code generation nor the loss of a
# context.
#   BUILD              the build folder
#   OPTC_FUZZ_SECONDS  runs only random specs, for this long (first seed: OPTC_FUZZ_SEED)
# `emu.sh CASE…` runs cases of the suite; the case `tools` is tuning and packages. Without arguments
# everything runs.
set -eu
if ! command -v ${CXX:-g++} >/dev/null 2>&1; then
    echo "skipped: the GPU's suite on an emulated GPU (no C++ compiler)"
    [ -z "${CI:-}" ] || exit 1
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here=$PWD
. tests/parts/emulated.sh
export OPTC_TEST_SMALL=1 OPTC_TEST_CACHE="$work"
# the CPU's rules step small tensors here, and their results do not depend on the level
export OPTC_CFLAGS=-O0
unset OPTC_NO_CUDA OPTC_NO_NVRTC OPTC_CACHE_BASE 2>/dev/null || true
if [ -n "${OPTC_FUZZ_SECONDS:-}" ]; then
    CK_DEFAULT_TIMEOUT=0 CK_RUN_CASE=random "$BUILD/gpu-test"
    exit
fi
tools=
[ $# -gt 0 ] ||
    set -- library compositions graphs launches live-tuning memory products square-matrices blocks \
    factors eigen codes rounding master types shards alike nccl functions random tools
for case; do
    [ "$case" != tools ] || { tools=yes; continue; }
    rc=0
    CK_RUN_CASE=$case "$BUILD/gpu-test" > "$work/said" 2>&1 || rc=$?
    cat "$work/said"
    [ $rc = 0 ] && grep -q 'Checks: [1-9]' "$work/said" || {
        echo "case $case failed, or ran no checks"; exit 1; }
done
[ -n "$tools" ] || exit 0

unset OPTC_CFLAGS
# clang compiles a package at -O0 in a third of gcc's time
quick_cc=${CC:-cc}
[ -n "${OPTC_ALL:-}" ] || ! command -v clang >/dev/null 2>&1 || quick_cc=clang
# these programs run longer than they take to compile
export OPTC_CACHE="$work/cache" EMU_OPT=-O1
# Tuning rejects candidates that give other bits. EMU_WRONG makes the kernels with 256 threads skip
# their first block.
EMU_WRONG='__launch_bounds__(256' OPTC_TUNE="$work/tune" "$BUILD/optc" tune sgd --device cuda \
    --sizes 2^12 --trials 12 --log "$work/tried" > "$work/log" || { cat "$work/log"; exit 1; }
[ "$(grep -c 'threads=256 .* ms=failed' "$work/tried")" -gt 0 ] &&
    ! grep 'threads=256 .* ms=[0-9]' "$work/tried" &&
    ! grep 'threads=\(128\|512\) .* ms=failed' "$work/tried" ||
    { cat "$work/log" "$work/tried"; echo "other bits were not noticed"; exit 1; }
timed=$(grep -c 'ms=[0-9]' "$work/tried") refused=$(grep -c 'ms=failed' "$work/tried")
echo "tuning: $timed launches with equal bits timed, $refused with other bits refused"

# The benchmark's table for a GPU, with bars of the command line. The clock of this GPU counts
# launches.
rc=0
"$BUILD/bench-release" sgd --device cuda --size 4K --rounds 1 --bar ms=900,host_us=0.001 > \
    "$work/log" 2>&1 || rc=$?
[ $rc = 1 ] && grep -q '^ *bars  ms=900 host_us=0.001  misses host$' "$work/log" ||
    { cat "$work/log"; echo "bars on a GPU: exit status $rc"; exit 1; }

# One element, odd counts, and a GPU whose memory holds one set of tensors but not two.
"$BUILD/optc" tune sgd --device cuda --sizes 1,100 --trials 2 --into "$work/tiny" > "$work/log" &&
    EMU_MEMORY=81000000 "$BUILD/optc" tune sgd --device cuda --sizes 2^20 --trials 2 --into \
    "$work/tiny" >> "$work/log" ||
    { cat "$work/log"; echo "tiny tensors, or a tiny GPU, could not be tuned for"; exit 1; }
"$BUILD/optc" tune adafactor --device cuda --stage step_9 --into "$work/none" > "$work/said" 2>&1 &&
    { echo "a stage that is not there was tuned"; exit 1; }
stages="step_1_map, step_2_tile_matrix, step_8_map_matrix, step_11_map, step_12_map_matrix"
grep -q "no stage 'step_9' with something to tune (there are: $stages)" "$work/said" || {
    cat "$work/said"; exit 1; }
# Every size that was searched has a result, if only the model's launch. Without one the result of
# another size would be used.
searched=$(grep -c ' tried in ' "$work/log" || true)
[ "$searched" -gt 0 ] && [ "$(grep -c '^map f32' "$work/tiny")" = "$searched" ] ||
    { cat "$work/log" "$work/tiny"; echo "a size that was searched has no result"; exit 1; }
# A stored launch that the search no longer tries (vectors of two f32) is ignored: it is not used,
# and its stage is tuned again.
sed 's/ vector=[0-9]*/ vector=2/; s/ (unfinished)//' "$work/tiny" > "$work/old"
"$BUILD/optc" tune sgd --device cuda --sizes 1 --trials 2 --into "$work/old" > "$work/log" &&
    grep -q ' tried in ' "$work/log" ||
    { cat "$work/log" "$work/old"; echo "a launch that is not tried any more passes for a result"
    exit 1; }
# Methods for eigenvectors have no launch. They are stored, found the next time, and shown.
cat > "$work/basis.lua" <<'X'
return optimizer { name = "basis", state = { V = eye(1, "rows") }, step = function() p = p - g end,
  matrix = function() local w, U = eigh(gram(g))  V = U + 0 * w.T  p = p - mm(V, g) end }
X
"$BUILD/optc" tune "$work/basis.lua" --device cuda --stage eigenvectors_8x1 --budget 600s --into \
    "$work/ways" > "$work/log" &&
    grep -q '^eigen f32,f32,f32 [0-9a-f]* 2^0 way=[14] ms=.* n=[0-9]* # eigenvectors_8x1$' \
    "$work/ways" &&
    "$BUILD/optc" tune "$work/basis.lua" --device cuda --stage eigenvectors_8x1 --into \
    "$work/ways" |
        grep -q '^1 done before' &&
    OPTC_TUNE="$work/ways" "$BUILD/optc" tune show --stage eigenvectors | grep -q ' way=' ||
    { cat "$work/log" "$work/ways"
    echo "methods of eigenvectors are not tuned, or not known afterwards"; exit 1; }
# Packages contain the methods for the GPU that they were measured on, and their engines look them
# up.
sed 's/^device .*/device NVIDIA H200 | units 132 | driver 580/;
    s/ way=[0-9] / way=2 /' "$work/ways" > "$work/h200"
OPTC_TUNE="$work/h200" EMU_OPT=-O0 "$BUILD/optc" ship "$work/basis.lua" --arch sm_90 --name ways \
    -o "$work/packed" > "$work/log" &&
    grep -q 'sm_90: tuned methods for 1 size of eigenvectors and roots' "$work/log" ||
    { cat "$work/log" "$work/h200"; echo "methods are not in a package"; exit 1; }
cat > "$work/ways.c" <<'X'
#include "packed/ways.c"
int main(void)
{
    ways_engine_options o = {.device = "cuda"};
    ways_engine *e;
    if (ways_open(&o, &e) != WAYS_OK)
        return puts(ways_message()), 1;
    printf("a package's methods: %d %d %d\n", method_known(e, false, false, 9),
           method_known(e, false, false, 64), method_known(e, false, true, 9));
    return ways_close(e) != WAYS_OK;
}
X
$quick_cc -O0 -Wall -Wextra -Werror -DWAYS_NO_CLONES "$work/ways.c" -lm -ldl -o "$work/ways_of" &&
    "$work/ways_of" | grep -qx "a package's methods: 2 0 0" ||
    { "$work/ways_of"; echo "a package does not find its methods"; exit 1; }

# A package's steps on the emulated GPU against the library's, bit for bit: the first one alone, the
# next in graphs, then captured and replayed. Then the library with only the package's code, and
# memory of a second GPU.
cat > "$work/mine.lua" <<'X'
return optimizer {
  name = "mine", hyper = { lr = 0.1 }, inputs = { loss = "group" }, state = { s = copy(p) },
  step = function()
    s = lerp(s, p, 0.5)
    p = p - lr * g / (1 + loss * loss) - lr * (p - s) / t
  end }
X
# products in bf16 on the GPU and in f32 on the CPU: two plans of one rule
cat > "$work/mixed.lua" <<'X'
return optimizer {
  name = "mixed", hyper = { lr = 0.1 }, products = "bf16",
  state = { m = zeros, l = eye(0.5, "rows") },
  step = function() p = p - lr * g end,
  matrix = function()
    l = 0.5 * l + gram(g) / ncols
    m = lerp(m, mm(l, g), 0.5)
    p = p - lr * m / t
  end }
X
set -- adamw_clip adamw 'clip(1)' sgd_lookahead sgd 'lookahead(2,0.5)' mine \
    "$work/mine.lua" '' mixed "$work/mixed.lua" ''
"$BUILD/optc" ship 'adamw+clip(1)' 'sgd+lookahead(2,0.5)' "$work/mine.lua" "$work/mixed.lua" \
    --arch sm_90 -o "$work/rules" > "$work/log" || { cat "$work/log"; exit 1; }
ln -s "$PWD/$BUILD/liboptc.so" "$work/liboptc.so.0"
$quick_cc -O0 -DRULES_NO_CLONES -I"$work/rules" -Iruntime tests/ship/compare.c \
    "$work/rules/rules.c" "$BUILD/liboptc.so" -Wl,-rpath,"$work" -lm -ldl -o "$work/compare"
"$work/compare" cuda f32 "$@"
OPTC_NO_CUDA=1 "$work/compare" cpu f32 mixed "$work/mixed.lua" ""
grep -q 'program_2mixed = {"mixed"' "$work/rules/rules.c" &&
    ! grep -q 'program_2mine' "$work/rules/rules.c"
[ -n "${OPTC_ALL:-}" ] || set -- mine "$work/mine.lua" '' mixed "$work/mixed.lua" ''
env OPTC_NO_NVRTC=1 OPTC_CACHE= OPTC_CACHE_BASE="$work/rules" "$work/compare" cuda f32 "$@" |
    tee "$work/log"
[ "$(grep -c 'from the package rules (sm_90)' "$work/log")" = $(($# / 3)) ]
EMU_GPUS=2 "$work/compare" elsewhere adamw_clip adamw 'clip(1)'

# A package of a 16-bit parameter with states in block codes.
"$BUILD/optc" ship adamw --types param=bf16,grad=bf16,state=q8 --arch sm_90 --name rules \
    -o "$work/coded" > "$work/log" || { cat "$work/log"; exit 1; }
$quick_cc -O0 -DRULES_NO_CLONES -I"$work/coded" -Iruntime tests/ship/compare.c \
    "$work/coded/rules.c" "$BUILD/liboptc.so" -Wl,-rpath,"$work" -lm -ldl -o "$work/compare_coded"
"$work/compare_coded" cuda bf16+grad=bf16,state=q8 adamw adamw ''
