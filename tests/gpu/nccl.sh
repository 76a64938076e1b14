#!/bin/sh
# Sharded bindings with the real NCCL and one rank: adamw+clip(1) and muon, step by step and
# captured, against plain bindings. NCCL: $OPTC_NCCL, or that of $OPTC_PYTHON's (python3's) package
# nvidia-nccl, or the loader's.
#   sh tests/gpu/nccl.sh [BUILD]        after `make BUILD/gpu-test`
# Without NCCL it prints `skipped: …` and passes; with CI set it fails.
set -eu
build=${1:-build}
find='import glob, importlib.util
s = importlib.util.find_spec("nvidia.nccl")
print(*[f for d in (s.submodule_search_locations if s else [])
        for f in glob.glob(d + "/lib/libnccl.so.2")][:1])'
: "${OPTC_NCCL:=$("${OPTC_PYTHON:-python3}" -c "$find" 2>/dev/null || true)}"
if [ -n "$OPTC_NCCL" ]; then export OPTC_NCCL; else unset OPTC_NCCL; fi
echo "NCCL: ${OPTC_NCCL:-libnccl.so.2 of the loader}"
export OPTC_TEST_CACHE="$build/test-cache" OPTC_TUNE=
mkdir -p "$OPTC_TEST_CACHE" && chmod 700 "$OPTC_TEST_CACHE"
said=$(mktemp)
trap 'rm -f "$said"' EXIT
rc=0
CK_RUN_CASE=nccl "$build/gpu-test" > "$said" 2>&1 || rc=$?
cat "$said"
[ $rc = 0 ] || exit $rc
! grep -q '^skipped: ' "$said" || [ -z "${CI:-}" ]
