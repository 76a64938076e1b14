#!/bin/sh
# Shampoo and SOAP over GPT-2 124M on the GPU at hand, beside torch: the mean step of a whole period, and the slowest,
# with bars.
#   sh tests/gpu/factors.sh [BUILD]        after `make`, and `sh tests/bench/peers.sh` where pip finds anything; about a
#       minute and a half
# FACTORS_ARGS: other shapes, for a try of the script itself: FACTORS_ARGS='--size 60K --rounds 1' FACTORS_DEVICE=cpu
# Both sides of SOAP precondition sides up to 4096, so that of the embedding's 50257 x 768 the long one has no basis,
# keep products in f32 (torch's "highest", no TF32), and turn the basis at every tenth step. It starts from the identity
# here: the first step is in no mean, and others' eigenvectors are not ours to time.
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
row shampoo shampoo
row soap soap --options start=identity
echo "$failed rows failed"
[ "$failed" = 0 ]
