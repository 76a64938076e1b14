#!/bin/sh
# Packages with functions of matrices (optc ship --functions) against the library, bit for bit: on the CPU, and on an
# emulated GPU. Packages that do not ask for them contain neither their names nor their code.
#   BUILD  the build folder
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here=$PWD
optc=$here/$BUILD/optc
flags="-std=gnu11 -Wall -Wextra -Werror -Iruntime -I$work/pf"
libs="-L$BUILD -loptc -Wl,-rpath,$here/$BUILD -lm -ldl"
export OPTC_CACHE="${OPTC_TEST_CACHE:-$work/cache}" OMP_NUM_THREADS=1

"$optc" ship sgd -o "$work/plain" > "$work/log"
! grep -q 'plain_matrix_power\|plain_multiply\|optc_copy_of' "$work/plain/plain.h" "$work/plain/plain.c" ||
    { echo "a package without --functions contains functions of matrices"; exit 1; }
if "$optc" ship sgd --functions eigh,cube -o "$work/none" > "$work/log" 2>&1 ||
    ! grep -q "there is no function 'cube'; known are all, products, matrix_power" "$work/log"; then
    cat "$work/log"
    echo "an unknown function is not refused"
    exit 1
fi

# All functions, as C++ too, and on the emulated GPU: with OPTC_ALL=1. Otherwise a part of them on the CPU.
if [ -z "${OPTC_ALL:-}" ]; then
    "$optc" ship sgd --functions eigh,linear -o "$work/pf" > "$work/log"
    # products are part of every package with functions
    devices=cpu some="eigh multiply chain kron kron_apply sample_norms clipped_sum kfac_factors"
else
    . tests/parts/emulated.sh
    unset OPTC_NO_CUDA OPTC_NO_NVRTC 2> /dev/null || true
    "$optc" ship sgd --functions all --arch sm_90 -o "$work/pf" > "$work/log" || { cat "$work/log"; exit 1; }
    ${CXX:-g++} -x c++ -std=c++17 -Wall -Wextra -Werror -DPF_NO_CLONES -fsyntax-only "$work/pf/pf.c"
    devices="cpu cuda" some=
fi
"$optc" ship --check "$work/pf" > "$work/log" || { cat "$work/log"; exit 1; }
${CC:-cc} -O0 -DPF_NO_CLONES $flags -c "$work/pf/pf.c" -o "$work/pf.o"
${CC:-cc} $flags tests/ship/matrix_functions.c "$work/pf.o" $libs -o "$work/matrix_functions"
for device in $devices; do
    PF_CUBLAS="${OPTC_CUBLAS:-}" PF_CUSOLVER="${OPTC_CUSOLVER:-}" "$work/matrix_functions" $device $some
done
