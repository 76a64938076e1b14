#!/bin/sh
# optc.torch on an NVIDIA GPU: its tests, then a step through Python beside torch's fused one, against the bars.
#   sh tests/gpu/python.sh [BUILD [test|bench]…]      after `make`; python3 (or $OPTC_PYTHON) has a torch with CUDA
build=${1:-build}
[ $# = 0 ] || shift
python=${OPTC_PYTHON:-python3}
export OPTC_LIBRARY="$PWD/$build/liboptc.so" OPTC_CACHE="${OPTC_CACHE:-$PWD/$build/cache}" \
    PYTHONPATH=runtime/python:tests/python PYTHONDONTWRITEBYTECODE=1
failed=0
for part in ${*:-test bench}; do
    case $part in
    test) "$python" -W ignore -m unittest -v test_cuda test_cuda_cupy test_cuda_samples test_cuda_functions ||
        failed=$((failed + 1)) ;;
    bench) "$python" -W ignore tests/python/bench.py || failed=$((failed + 1)) ;;
    *) echo "there is no part '$part'"; failed=$((failed + 1)) ;;
    esac
done
exit $failed
