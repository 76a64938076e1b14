#!/bin/sh
# Checks inverse roots and orthonormal columns on this GPU, then times them against cuSOLVER, with bars. Takes about a
# minute.
#   sh tests/gpu/roots.sh [BUILD]        after `make BUILD/gpu-test`
set -eu
build=${1:-build}
export OPTC_TEST_CACHE=${OPTC_TEST_CACHE:-$build/test-cache} OPTC_TUNE= OPTC_TUNE_SITE=
mkdir -p "$OPTC_TEST_CACHE" && chmod 700 "$OPTC_TEST_CACHE"
CK_RUN_CASE=factors "$build/gpu-test"
CK_RUN_CASE=eigen "$build/gpu-test"
OPTC_ROOT_TIMES=1 CK_RUN_CASE=root-times "$build/gpu-test"
