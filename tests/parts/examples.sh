#!/bin/sh
# Builds runtime/examples against an installed library and runs them: a GPT that is saved and
# resumed, on any rule; the same with a package; C++. The header for llm.c compiles. Called by
# tests/parts/install.sh.
#   sh tests/parts/examples.sh PREFIX
set -eu
prefix=$1 top=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! command -v cmake >/dev/null 2>&1; then
    echo "skipped: examples (no cmake)"
    exit 0
fi
built() {                              # FOLDER [OPTIONS…]
    from=$1
    shift
    { cmake -S "$top/runtime/examples/$from" -B "$work/$from" -DCMAKE_PREFIX_PATH="$prefix" "$@" &&
        cmake --build "$work/$from"; } > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
}
export OPTC_CACHE="${OPTC_TEST_CACHE:-$work/cache}"
# the header for llm.c, with the parts of its GPT2 that it reads
cat > "$work/llm.c" <<'C'
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#define NUM_PARAMETER_TENSORS 16
typedef struct { struct { int num_layers, channels; } config; size_t param_sizes[16];
    float *params_memory, *grads_memory; } GPT2;
#include "runtime/examples/optc_update.h"
int main(void) { GPT2 m = {0}; return gpt2_bind(&m, "cpu", "adamw") != NULL; }
C
${CC:-cc} -std=c11 -Wall -Wextra -Werror -I. -I"$prefix/include" -fsyntax-only "$work/llm.c"
built gpt
cd "$work"
for rule in 'adamw+clip(1)' muon; do
    gpt/gpt "$top/README.md" --device cpu --rule "$rule" --steps 8 > straight
    gpt/gpt "$top/README.md" --device cpu --rule "$rule" --steps 4 --save half.safetensors > first
    gpt/gpt "$top/README.md" --device cpu --rule "$rule" --steps 8 --resume \
        half.safetensors > second
    grep -q 'steps 5 to 8' second
    [ "$(grep 'last loss' straight)" = "$(grep 'last loss' second)" ] || {
        cat straight second; exit 1; }
    gpt/gpt "$top/README.md" --device cpu --rule "$rule" --steps 8 --resume half.safetensors \
        --lr 1e-9 > second
    [ "$(grep 'last loss' straight)" != "$(grep 'last loss' second)" ] || {
        echo "--resume overrides --lr"; exit 1; }
done
"$prefix/bin/optc" checkpoint show half.safetensors | grep -q '0.qkv/param'
if gpt/gpt "$top/README.md" --device cpu --rule lion --resume half.safetensors > /dev/null 2> said
    then exit 1; fi
grep -q muon said
if gpt/gpt --rule 2> said; then exit 1; fi
grep -q usage: said
# packages take long to compile: without optimization
printf '#!/bin/sh\nexec %s "$@" -O0 -DRULES_NO_CLONES\n' "${CC:-cc}" > quick-cc && chmod +x quick-cc
built gpt_package -DOPTC="$prefix/bin/optc" -DCMAKE_C_COMPILER="$work/quick-cc"
for rule in adamw_clip muon; do
    gpt_package/gpt_package "$top/README.md" cpu $rule 20 > said
    awk '/^step    0/ { a = $NF } /^step   20/ { b = $NF } END { exit !(b < a) }' said || {
        cat said; exit 1; }
    gpt_package/gpt_package "$top/README.md" cpu $rule 9 $rule.safetensors > first
    gpt_package/gpt_package "$top/README.md" cpu $rule 20 $rule.safetensors > second
    grep -q 'continues at step 10' second
    [ "$(grep '^step   20' said)" = "$(grep '^step   20' second)" ] || { cat said second; exit 1; }
done
# the library continues from the file of a package, and the package from the library's
gpt/gpt "$top/README.md" --device cpu --rule muon --steps 22 --resume muon.safetensors \
    --save more.safetensors > said
grep -q 'steps 22 to 22' said
gpt_package/gpt_package "$top/README.md" cpu muon 22 more.safetensors |
    grep -q 'continues at step 22'
if gpt_package/gpt_package "$top/README.md" cpu adamw_clip 22 more.safetensors > /dev/null 2> said
    then exit 1; fi
grep -q muon said
if command -v g++ >/dev/null 2>&1; then
    built cpp
    cpp/circle cpu 'adamw+clip(1)' | grep -q ': 0.866 -0.[45]'
    if cpp/circle cpu nothing 2> said; then exit 1; fi
    grep -q nothing said
fi
echo "examples ok"
