#!/bin/sh
# Tests the Python package: on the library alone, as a wheel, and with torch. Run by tests/part.sh
# with BUILD set. Uses the torch of $OPTC_PYTHON or python3; if there is none, downloads it into a
# virtual environment in the user's cache and keeps it. OPTC_OFFLINE=1 downloads nothing. Tests that
# cannot run here are named; with CI set that fails.
set -eu
torch=2.13.0
python=${OPTC_PYTHON:-python3}
export OPTC_CACHE="${OPTC_TEST_CACHE:-$PWD/$BUILD/test-cache}" OPTC_LIBRARY="$PWD/$BUILD/liboptc.so"
# rules run for a few steps here, and their results do not depend on it
export OPTC_CFLAGS=-O0
unset OPTC_BLAS 2>/dev/null || true

has_torch() { "$1" -c 'import importlib.util as u, sys;
    sys.exit(not (u.find_spec("torch") and u.find_spec("numpy")))' \
    2>/dev/null; }

fetched() {
    venv=${XDG_CACHE_HOME:-$HOME/.cache}/optc-tests/torch-$torch
    [ ! -x "$venv/bin/python" ] || ! has_torch "$venv/bin/python" || return 0
    [ -z "${OPTC_OFFLINE:-}" ] || { echo "torch: not found, and OPTC_OFFLINE is set"; return 1; }
    echo "fetching torch $torch into $venv (kept there)"
    rm -rf "$venv"
    mkdir -p "${venv%/*}"
    # Debian's Python has venv without pip
    if ! "$python" -m venv "$venv" >/dev/null 2>&1; then
        rm -rf "$venv"
        "$python" -m venv --without-pip "$venv" && pip="$python -m pip --python $venv/bin/python"
    else
        pip="$venv/bin/python -m pip"
    fi && $pip install -q --disable-pip-version-check --retries 2 --no-compile --only-binary=:all: \
        "torch==$torch" numpy || { rm -rf "$venv"; return 1; }
}

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
BUILD=$BUILD PYTHONPATH=runtime/python "$python" \
    -c 'import sys, build_wheel; build_wheel.build_wheel(sys.argv[1])' "$made" >/dev/null
mkdir "$made/site"
"$python" -m zipfile -e "$made"/optc-*.whl "$made/site"
chmod +x "$made/site/optc/_bundled/"*
WHEEL=$made/site "$python" tests/python/wheel.py

with=$python
if ! has_torch "$python"; then
    with=
    fetched && with=$venv/bin/python || true
fi
if [ -z "$with" ]; then
    PYTHONPATH=runtime/python:tests/python "$python" -m unittest -q test_lib test_saved_bindings
    echo "skipped: optc in torch's loops (torch $torch could not be had)"
    [ -z "${CI:-}" ]
    exit
fi
OMP_NUM_THREADS=1 PYTHONPATH=runtime/python:tests/python "$with" -W ignore -m unittest -q test_lib \
    test_saved_bindings test_torch_inputs \
    test_optimizer test_loop_wrappers test_state test_state_files test_coded_states \
    test_tensor_binding test_address_check test_gradient_memory test_scaling test_mixed_types \
    test_function_cache test_rule_classes test_constructors test_positional test_no_memory \
    test_create test_old_pickle test_contracts test_param_routing test_param_roles \
    test_complex_params test_training test_comm test_sharded \
    test_sharded_rules test_sharded_files test_shard_checks test_samples test_master test_hooks \
    test_modes test_interrupts test_data_parallel test_kfac \
    test_functions test_elsewhere test_fuzz_contracts test_first_hour test_cookbook test_pages \
    test_race
PYTHONPATH=$made/site "$with" -W ignore tests/python/before_torch.py
