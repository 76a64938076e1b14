#!/bin/sh
# Packages with functions of matrices (optc ship --functions) against the library, bit for bit: on
# the CPU, and on an emulated GPU. Packages that do not ask for them contain neither their names nor
# their code.
#   BUILD  the build folder
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here=$PWD
optc=$here/$BUILD/optc
flags="-std=gnu11 -Wall -Wextra -Werror -Iruntime -I$work/pf"
libs="-L$BUILD -loptc -Wl,-rpath,$here/$BUILD -lm -ldl"
export OPTC_CACHE="${OPTC_TEST_CACHE:-$work/cache}" OMP_NUM_THREADS=1

# clang compiles a package at -O0 in a third of gcc's time
quick_cc=${CC:-cc}
[ -n "${OPTC_ALL:-}" ] || ! command -v clang >/dev/null 2>&1 || quick_cc=clang

"$optc" ship sgd -o "$work/plain" > "$work/log"
! grep -q 'plain_matrix_power\|plain_multiply\|optc_copy_of' "$work/plain/plain.h" \
    "$work/plain/plain.c" ||
    { echo "a package without --functions contains functions of matrices"; exit 1; }
if "$optc" ship sgd --functions eigh,cube -o "$work/none" > "$work/log" 2>&1 ||
    ! grep -q "there is no function 'cube'; known are all, products, matrix_power" "$work/log"; then
    cat "$work/log"
    echo "an unknown function is not refused"
    exit 1
fi

# All functions, as C++ too, and on the emulated GPU: with OPTC_ALL=1. Otherwise a part of them on
# the CPU.
if [ -z "${OPTC_ALL:-}" ]; then
    "$optc" ship sgd --functions eigh,linear -o "$work/pf" > "$work/log"
    # products are part of every package with functions
    devices=cpu some="eigh multiply chain kron kron_apply sample_norms clipped_sum kfac_factors"
else
    . tests/parts/emulated.sh
    unset OPTC_NO_CUDA OPTC_NO_NVRTC 2> /dev/null || true
    "$optc" ship sgd --functions all --arch sm_90 -o "$work/pf" > "$work/log" || {
        cat "$work/log"; exit 1; }
    ${CXX:-g++} -x c++ -std=c++17 -Wall -Wextra -Werror -DPF_NO_CLONES -fsyntax-only "$work/pf/pf.c"
    devices="cpu cuda" some=
fi
"$optc" ship --check "$work/pf" > "$work/log" || { cat "$work/log"; exit 1; }
$quick_cc -O0 -DPF_NO_CLONES $flags -c "$work/pf/pf.c" -o "$work/pf.o"
${CC:-cc} $flags tests/ship/matrix_functions.c "$work/pf.o" $libs -o "$work/matrix_functions"
for device in $devices; do
    PF_CUBLAS="${OPTC_CUBLAS:-}" PF_CUSOLVER="${OPTC_CUSOLVER:-}" "$work/matrix_functions" \
        $device $some
done

# GPU code alone, as in a wheel: whole without sources, and all that the library needs. NVRTC and
# the driver are fakes.
(
    export LD_LIBRARY_PATH="$here/$BUILD/fake/versioned:$here/$BUILD/emu" \
        OPTC_NVRTC="$here/$BUILD/fake/nvrtc" FAKE_CUDA=works FAKE_CODE=1 OPTC_TUNE=
    unset OPTC_NO_CUDA OPTC_NO_NVRTC OPTC_CACHE_BASE OPTC_ALL 2> /dev/null || true
    refused() {                                # refused TEXT COMMAND…
        text=$1
        shift
        ! "$@" > "$work/log" 2>&1 && grep -q "$text" "$work/log" ||
            { cat "$work/log"; echo "not refused: $*"; exit 1; }
    }
    code() {                                   # code NAME ARGUMENT…
        "$optc" ship "$@" --code-only --arch sm_80,sm_90 > "$work/log" || {
            cat "$work/log"; exit 1; }
    }
    code -o "$work/functions" --functions all
    code -o "$work/rules_f32" --all-specs --types param=f32
    code -o "$work/rules_bf16" --all-specs --types param=bf16,grad=bf16,state=f32
    [ "$(ls "$work/functions" | tr '\n' ' ')" = "functions.fatbin manifest " ]
    "$optc" ship --check "$work/functions" > "$work/checked" || { cat "$work/checked"; exit 1; }
    for text in ': 0 rules, [0-9]* programs of functions of matrices' \
        '^GPU code alone, without C sources' 'ok   sm_80' 'ok   sm_90' \
        '^here: cuda:0, Fake GPU, sm_90: it would load'; do
        grep -q "$text" "$work/checked" || { cat "$work/checked"
            echo "--check does not print: $text"; exit 1; }
    done
    refused 'needs --arch' "$optc" ship sgd --code-only -o "$work/none"
    export OPTC_CACHE_BASE="$work/functions:$work/rules_f32:$work/rules_bf16" \
        OPTC_LIBRARY="$here/$BUILD/liboptc.so"
    check() { PYTHONPATH=runtime/python ${OPTC_PYTHON:-python3} tests/python/wheel_gpu.py "$@"; }
    FAKE_ARCH=90 check ${some:+sgd adashift muon soap}
    # the message names the reason for each package, and the remedy
    FAKE_ARCH=75 refused "it has no code for sm_75.*NVRTC was not found" check sgd
    FAKE_VERSION=12040 refused "for CUDA 12.4, and its code needs one for 13.0 or newer.*NVRTC" \
        check sgd
    rm "$work/functions/functions.fatbin"
    refused 'BAD .*functions.fatbin: No such file' "$optc" ship --check "$work/functions"
)
