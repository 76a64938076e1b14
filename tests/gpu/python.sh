#!/bin/sh
# Runs the tests of optc.torch on an NVIDIA GPU, then times a step through Python against torch's
# fused step, with bars.
#   sh tests/gpu/python.sh [BUILD [test|bench]…] after `make`; needs a python3 (or $OPTC_PYTHON)
#   with a CUDA torch
build=${1:-build}
[ $# = 0 ] || shift
python=${OPTC_PYTHON:-python3}
export OPTC_LIBRARY="$PWD/$build/liboptc.so" OPTC_CACHE="${OPTC_CACHE:-$PWD/$build/cache}" \
    PYTHONPATH=runtime/python:tests/python PYTHONDONTWRITEBYTECODE=1
failed=0
for part in ${*:-test bench}; do
    case $part in
    test) "$python" -W ignore -m unittest -v test_cuda test_cuda_cupy test_cuda_samples \
        test_cuda_functions ||
        failed=$((failed + 1)) ;;
    bench) "$python" -W ignore tests/python/bench.py || failed=$((failed + 1)) ;;
    *) echo "there is no part '$part'"; failed=$((failed + 1)) ;;
    esac
done
exit $failed
