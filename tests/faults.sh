#!/bin/sh
# Calls that fail once: tests/faults says what is tried and what must hold.
#   BUILD  the build folder
# faults.sh quick: a sample; all: every call; then perhaps SCENE, KIND and NUMBER for one of them, which also says who
# made the call
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here=$PWD
. tests/emulated.sh
unset OPTC_NO_CUDA OPTC_NO_NVRTC 2>/dev/null || true
command -v "${CXX:-g++}" >/dev/null 2>&1 || export FAULTS_NO_GPU=1
"$BUILD/faults" "$work" "$@"
