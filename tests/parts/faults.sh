#!/bin/sh
# Lets every allocation, file call and driver call fail once. tests/faults describes the scenarios
# and what must hold.
#   BUILD  the build folder
# `faults.sh quick` runs a sample, `faults.sh all` every call. SCENE KIND NUMBER after that runs one
# failure and prints the stack of the call.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here=$PWD
. tests/parts/emulated.sh
unset OPTC_NO_CUDA OPTC_NO_NVRTC 2>/dev/null || true
command -v ${CXX:-g++} >/dev/null 2>&1 || export FAULTS_NO_GPU=1
"$BUILD/faults" "$work" "$@"
