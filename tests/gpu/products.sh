#!/bin/sh
# Checks every form of product in every precision, then times products on this GPU: symmetric
# against full ones, with bars, and other block sizes against those in use. Takes about a minute.
#   sh tests/gpu/products.sh [BUILD]        after `make BUILD/gpu-test`
set -eu
build=${1:-build}
export OPTC_TEST_CACHE=${OPTC_TEST_CACHE:-$build/test-cache} OPTC_TUNE=
mkdir -p "$OPTC_TEST_CACHE" && chmod 700 "$OPTC_TEST_CACHE"
CK_RUN_CASE=products "$build/gpu-test"
OPTC_PRODUCT_TIMES=1 CK_RUN_CASE=product-times "$build/gpu-test"
