#!/bin/sh
# Times inverse roots, orthonormal columns and eigenvectors on this GPU, the first two against
# cuSOLVER, with bars. It takes about a minute (an estimate). The cases factors and eigen of all.sh
# check results.
#   sh tests/gpu/roots.sh [BUILD]        after `make BUILD/gpu-test`
set -eu
build=${1:-build}
export OPTC_TEST_CACHE=${OPTC_TEST_CACHE:-$build/test-cache} OPTC_TUNE=
mkdir -p "$OPTC_TEST_CACHE" && chmod 700 "$OPTC_TEST_CACHE"
OPTC_ROOT_TIMES=1 CK_RUN_CASE=root-times "$build/gpu-test"
