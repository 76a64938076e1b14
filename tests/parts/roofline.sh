#!/bin/sh
# Tests `optc bench -o`: page, picture and JSON of a small measurement agree, interruption,
# messages. race.sh runs it.
#   OPTC          the command
#   OPTC_PYTHON   Python 3 (default python3)
set -u
passed=0 failed=0 root=$PWD python=${OPTC_PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OPTC_CACHE="${OPTC_TEST_CACHE:-$work/cache}"
cd "$work" || exit 1

check() { "$@" && passed=$((passed + 1)) || { failed=$((failed + 1)); echo "failed: $*"; }; }
# expect CODE PART ARGS…: the command exits with CODE and its output contains PART
expect() {
    code=$1 part=$2
    shift 2
    out=$("$OPTC" bench --device cpu --threads 1 --rounds 1 --size 16K "$@" </dev/null 2>&1)
    got=$?
    if [ "$got" = "$code" ] && printf '%s' "$out" | grep -qF -- "$part"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'optc bench %s: exit %s (wanted %s), wanted "%s" in:\n%s\n' "$*" "$got" "$code" \
            "$part" "$out" | head -20
    fi
}
page() { "$python" "$root/tests/python/roofline_page.py" "$@"; }

# A vector rule, one with a reduction over all tensors, one with products; the peer is the same rule
# without tuning results.
small() { "$OPTC" bench sgd 'adamw+clip(1)' muon --device cpu --threads 1 --rounds 2 \
    --size 64K "$@"; }
small --json -o all.html > all.json
check test $? = 0
check page all.json all.html
small --json -o all.svg --against untuned > all.json
check page all.json all.svg
check test "$(grep -c 'data-mark="peer"' all.svg)" = 3
# specs/sgd.lua has 7 operations per element, and reads p, g and b and writes p and b
check "$python" - <<'ENDPY'
import json
rules = {r["rule"]: r for r in json.load(open("all.json"))["rules"]}
stage = [s for s in rules["sgd"]["stages"] if s["flops"]]
assert len(stage) == 1 and stage[0]["flops"] == 7 * 65536, stage
assert 0 <= stage[0]["bytes"] - 20 * 65536 < 100, stage
calls = sum(s["flops"] for s in rules["muon"]["stages"] if s["call"])
n = 256                        # five rounds of A = X X', B = b A + c A A, X = a X + B X
assert abs(calls / (5 * (2 * n * n * (n + 1) + 2 * n ** 3)) - 1) < 1e-9, calls
ENDPY
expect 0 "wrote one.html" sgd -o one.html
expect 0 "<!DOCTYPE html>" sgd -o -
expect 1 "cannot write none/a.html: No such file" sgd -o none/a.html
check test ! -e none
# a link stays one
ln -s target.html link.html
expect 0 "wrote link.html" sgd -o link.html
check test -h link.html -a -s target.html
expect 2 "both write to standard output" sgd --json -o -
OPTC_PROFILE=other.json expect 1 "unset OPTC_PROFILE" sgd -o two.html
check test ! -e two.html

# ---- Ctrl-C leaves a valid report
check "$python" - "$OPTC" <<'ENDPY'
import json, signal, subprocess, sys, time
for more in [], ["--json"]:
    run = subprocess.Popen([sys.argv[1], "bench", "sgd", "--device", "cpu", "--threads", "1",
                            "--size", "64K", "--rounds", "1000000", "-o", "stopped.html"] + more,
                           stdout=subprocess.PIPE)
    time.sleep(0.7)
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=20)
    assert run.returncode == 130 and (more or b"interrupted after " in out), (run.returncode, out)
report = json.loads(out)
assert report["interrupted"] and report["rules"][0]["ms"] > 0, out
assert "The measurement was interrupted" in open("stopped.html").read()
ENDPY
echo "roofline: $passed passed, $failed failed"
[ $failed = 0 ]
