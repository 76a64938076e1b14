#!/bin/sh
# Tests a package on an NVIDIA GPU: its steps against the library's, bit for bit, and their times.
# Then, with every compiler and NVRTC hidden, the first step of the package, and the library with
# the package as OPTC_CACHE_BASE.
#   sh tests/gpu/ship.sh [BUILD]        after `make`; needs NVRTC, nvfatbin or fatbinary, and a C
#                                       compiler
set -eu
build=${1:-build}
optc=$PWD/$build/optc lib=$PWD/$build/liboptc.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OPTC_CACHE="$work/cache"
arch=$("$optc" doctor | sed -n 's/^gpu .*\(sm_[0-9]*\).*/\1/p' | head -1)
echo "== a package for ${arch:=all}"
"$optc" ship 'adamw+clip(1)' adafactor 'sgd+lookahead(2,0.5)' novograd --arch "$arch" --ptx \
    -o "$work/rules"
"$optc" ship --check "$work/rules" > "$work/checked"
grep '^here' "$work/checked"
ln -s "$lib" "$work/liboptc.so.0"
${CC:-cc} -O2 -fopenmp -I"$work/rules" -Iruntime tests/ship/compare.c "$work/rules/rules.c" "$lib" \
    -Wl,-rpath,"$work" -lm -ldl -o "$work/compare"
${CC:-cc} -O2 -I"$work/rules" "$work/rules/example.c" "$work/rules/rules.c" -lm -ldl \
    -o "$work/example"
set -- adamw_clip adamw 'clip(1)' adafactor adafactor '' sgd_lookahead sgd \
    'lookahead(2,0.5)' novograd novograd ''

echo "== bit for bit: the package and the library, both on the GPU; the example on GPU and CPU"
"$work/compare" cuda f32 "$@"
"$work/example" cuda 50 | tee "$work/gpu"
"$work/example" cpu 50 | sed 1d > "$work/cpu"
sed 1d "$work/gpu" | cmp - "$work/cpu"
if [ "$arch" != all ]; then
    echo "== the same by PTX"
    "$optc" ship 'adamw+clip(1)' adafactor 'sgd+lookahead(2,0.5)' novograd --arch sm_80 --ptx \
        -o "$work/ptx/" --name rules 2>/dev/null >/dev/null
    ${CC:-cc} -O1 -DRULES_NO_CLONES -I"$work/ptx" -Iruntime tests/ship/compare.c \
        "$work/ptx/rules.c" "$lib" -Wl,-rpath,"$work" -lm -ldl -o "$work/compare-ptx"
    "$work/compare-ptx" cuda f32 "$@"
fi

echo "== parameters in bf16, states in block codes"
"$optc" ship adamw --types param=bf16,grad=bf16,state=q8 --arch "$arch" --name rules \
    -o "$work/coded" >/dev/null
${CC:-cc} -O1 -DRULES_NO_CLONES -I"$work/coded" -Iruntime tests/ship/compare.c \
    "$work/coded/rules.c" "$lib" -Wl,-rpath,"$work" -lm -ldl -o "$work/compare-coded"
"$work/compare-coded" cuda bf16+grad=bf16,state=q8 adamw adamw ''

echo "== as fast"
for i in 1 2 3 4; do
    "$work/compare" time cuda "$1" "$2" "$3"
    "$work/compare" time cuda "$1" "$2" "$3" 20
    shift 3
done

echo "== no compiler, no NVRTC: the first step, with the program's own context there already"
bare() { env PATH=/nothing OPTC_NO_NVRTC=1 OPTC_CC=/nothing/cc OPTC_CACHE="$work/empty" "$@"; }
for i in 1 2 3; do bare "$work/compare" first cuda adamw_clip; done
bare "$work/compare" first cuda adafactor
echo "== no compiler, no NVRTC: the library takes the rules from the package"
export OPTC_CACHE_BASE="$work/rules"
bare "$work/compare" best
bare "$work/compare" cuda f32 adamw_clip adamw 'clip(1)' adafactor adafactor '' sgd_lookahead sgd \
    'lookahead(2,0.5)' novograd novograd ''
