#!/bin/sh
# Inverse roots and orthonormal columns on the GPU at hand: their errors, then their times beside cuSOLVER's, with bars.
#   sh tests/gpu/roots.sh [BUILD]        after `make BUILD/gpu-test`; about a minute
set -eu
build=${1:-build}
export OPTC_TEST_CACHE=${OPTC_TEST_CACHE:-$build/test-cache} OPTC_TUNE= OPTC_TUNE_SITE=
mkdir -p "$OPTC_TEST_CACHE" && chmod 700 "$OPTC_TEST_CACHE"
CK_RUN_CASE=factors "$build/gpu-test"
CK_RUN_CASE=eigen "$build/gpu-test"
OPTC_ROOT_TIMES=1 CK_RUN_CASE=root-times "$build/gpu-test"
