#!/bin/sh
# Benchmarks Shampoo and SOAP on GPT-2 124M on this GPU against torch: the mean step of a whole period and the slowest
# step, with bars. Takes about 90 seconds.
#   sh tests/gpu/factors.sh [BUILD]        after `make`, and after `sh tests/bench/peers.sh` if pip has a network
#   FACTORS_ARGS='--size 60K --rounds 1' FACTORS_DEVICE=cpu        other shapes, for testing this script
# Both SOAPs precondition sides up to 4096, so the long side of the 50257 x 768 embedding has no basis. Both compute
# products in f32 (--products f32 here, torch's "highest" there, no TF32) and refresh the basis every ten steps. The
# first basis is the identity: the first step is not part of the mean, and the other package's first eigenvectors should
# not be timed.
build=${1:-build}
export OPTC_CACHE=${OPTC_CACHE:-$PWD/$build/cache} OPTC_TUNE= OPTC_TUNE_SITE=
failed=0
row() {
    name=$1
    shift
    timeout 240 "$build/optc" bench "$@" --device "${FACTORS_DEVICE:-cuda}" --work gpt2-124m --rounds 3 \
        --against torch $FACTORS_ARGS > "$build/log.factors-$name" 2>&1
    rc=$?
    cat "$build/log.factors-$name"
    if [ $rc != 0 ]; then
        failed=$((failed + 1)); echo "FAILED: $name ended with $rc"
    elif grep -q '^ *misses ' "$build/log.factors-$name"; then
        failed=$((failed + 1)); echo "FAILED: $name misses a bar"
    elif ! grep -q 'torch .* ran' "$build/log.factors-$name" || grep -q ': nothing: ' "$build/log.factors-$name"; then
        failed=$((failed + 1)); echo "FAILED: nothing was beside $name"
    elif [ "$name" = soap ] && ! grep -qE '(pytorch_optimizer|heavyball): [0-9.]+ ms' "$build/log.factors-$name"; then
        echo "note: others' SOAP is not in $build/peers: a plain transcription of ours was timed"
    fi
}
row shampoo shampoo --products f32
row soap soap --products f32 --options start=identity
echo "$failed rows failed"
[ "$failed" = 0 ]
