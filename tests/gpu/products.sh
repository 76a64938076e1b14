#!/bin/sh
# What products cost on the GPU at hand: symmetric ones against full ones with bars, blocks of other sizes beside those
# in use, and every form in every precision checked before.
#   sh tests/gpu/products.sh [BUILD]        after `make BUILD/gpu-test`; about a minute
set -eu
build=${1:-build}
export OPTC_TEST_CACHE=${OPTC_TEST_CACHE:-$build/test-cache} OPTC_TUNE= OPTC_TUNE_SITE=
mkdir -p "$OPTC_TEST_CACHE" && chmod 700 "$OPTC_TEST_CACHE"
CK_RUN_CASE=products "$build/gpu-test"
OPTC_PRODUCT_TIMES=1 CK_RUN_CASE=product-times "$build/gpu-test"
