#!/bin/sh
# Tests `optc race`: gradients of the tasks, a small race whose page and JSON agree, repetition bit
# for bit on any number of threads, interruption, and messages.
#   OPTC          the command
#   OPTC_PYTHON   Python 3 (default python3)
set -u
passed=0 failed=0 root=$PWD python=${OPTC_PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OPTC_CACHE="${OPTC_TEST_CACHE:-$work/cache}"
cd "$work" || exit 1

# expect CODE PART ARGS…: the command exits with CODE and its output contains PART
expect() {
    code=$1 part=$2
    shift 2
    out=$("$OPTC" race "$@" </dev/null 2>&1)
    got=$?
    if [ "$got" = "$code" ] && printf '%s' "$out" | grep -qF -- "$part"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'optc race %s: exit %s (wanted %s), wanted "%s" in:\n%s\n' "$*" "$got" "$code" \
            "$part" "$out" | head -20
    fi
}
check() { "$@" && passed=$((passed + 1)) || { failed=$((failed + 1)); echo "failed: $*"; }; }
page() { "$python" "$root/tests/python/race_page.py" "$@"; }

# ---- exact gradients
"$OPTC" race --check-gradients > gradients
check test $? = 0
check test "$(grep -c '^ok ' gradients)" = 6

# ---- one small race: a matrix rule, a wrapper, an average, a rule that diverges
cat > wild.lua <<'END'
return optimizer { name = "wild", hyper = { lr = 1 }, doc = "climbs <fast> & far",
    step = function() p = p + 9 * g end }
END
small() { "$OPTC" race adamw muon 'sgd+clip(1)' schedulefree_adamw ./wild.lua \
    --tasks matrix,spirals,embedding --steps 22 --trials 4 --seeds 6 "$@"; }
small --threads 1 -o one.html --json one.json --curves one.jsonl > one.txt
check test $? = 0
small --threads 3 -o two.html --json two.json > two.txt
check page one.json one.html
check page same one.json two.json
check page curves one.json one.jsonl
# only the picture: the same curves
expect 0 "wrote one.svg" --from one.json -o one.svg
check page picture one.json one.svg
expect 0 "wrote two.SVG" --from one.json -o two.SVG
check cmp one.svg two.SVG
# set_hessian reads the loss of the same batch as step
cat > same.lua <<'END'
return optimizer { name = "same", hyper = { lr = 0.01 }, doc = "needs one loss",
    inputs = { loss = "group" }, state = { seen = zeros "group" },
    set_hessian = function() seen = loss end,
    step = function() p = p - where(eq(seen, loss), lr, 1e30) * g end }
END
expect 0 "wrote same.html" ./same.lua sgd --tasks matrix --steps 3 --trials 2 --seeds 6 \
    --json same.json -o same.html
check test "$(grep -c '"diverged": *\(true\|[1-9]\)' same.json)" = 0
# the catalogue's page, with the curves that are kept in the repository; they fit in 100 KB
"$OPTC" list --html --curves "$root/specs/curves.jsonl" -o list.html
check page catalogue list.html "$root/specs/curves.jsonl" $("$OPTC" list --names)
check test "$(grep -c '<figure' list.html)" = "$( { "$OPTC" list --names
    "$OPTC" list --names --wrappers; } | wc -l)"
check test "$(wc -c < "$root/specs/curves.jsonl")" -le 100000
# every rule that can race has one; the task is still the one that they were made with: the first
# losses are the same
for name in $("$OPTC" list --names); do
    grep -q "\"rule\": \"$name\"" "$root/specs/curves.jsonl" ||
        expect 1 "which no task of the race can feed" "$name" --tasks spirals
done
check test "$(cut -d, -f1 "$root/specs/curves.jsonl" | sort | uniq -d)" = ""
expect 0 "wrote start.html" sgd --tasks spirals --seeds 6 --trials 1 --steps 10 -o start.html \
    --curves start.jsonl
check test "$(grep -o '"loss": \[[^,]*' "$root/specs/curves.jsonl" | sort -u)" = \
    "$(grep -o '"loss": \[[^,]*' start.jsonl)"
"$OPTC" list --html > plain.html
check grep -q 'no curve' plain.html
check test "$("$OPTC" list --html --curves one.json 2>&1)" = \
    "optc: list: line 1 of 'one.json' is no curve of optc race --curves"
check grep -q "wild.lua .* 6 " one.txt
check grep -q "not separable\|beats" one.txt
expect 0 "wrote again.html" --from one.json -o again.html
check cmp one.html again.html
small --threads 3 -o other.html --json other.json --seed 50 > /dev/null
page same one.json other.json 2> /dev/null && { failed=$((failed + 1))
    echo "another seed gave the same race"; }

# ---- entries under `gradients`: NaN unless `perturb` runs at steps 1, 4, 7, … and `step` gets a
# new gradient
cat > turns.lua <<'END'
return optimizer { name = "turns", hyper = { lr = 0.1 }, 
  state = { first = zeros, up = zeros "tensor", ok = zeros "tensor" },
  gradients = { { "perturb", every = 3, offset = 1 }, "step" },
  perturb = function() first, up, p = g, up + 1, p + 0.01 * g end,
  step = function()
    ok = where(gt(up, 0), 0, 1)
    every(3, { offset = 1 }, function() ok = where(gt(norm(g - first), 0), up, 0) end)
    p = p - lr * g / ok
    up = 0
  end }
END
sed 's/perturb/look/' turns.lua > look.lua
expect 0 "wrote turns.html" ./turns.lua ./look.lua sgd+sam sgd+looksam 'sgd+looksam(0.1,1)' \
    --tasks matrix --steps 22 --trials 1 --seeds 6 -o turns.html --json turns.json
check "$python" - <<'END'
import json
report = json.load(open("turns.json"))
turns, look, *others = report["results"]
assert [r["diverged"] for r in turns["runs"]] == [False] * 6, turns
assert [r["loss"] for r in turns["runs"]] == [r["loss"] for r in look["runs"]]
assert [r["note"] for r in report["rules"]] == [
    "one more gradient at one step in 3 (perturb)", "one more gradient at one step in 3 (look)",
    "one more gradient per step (perturb)", "one more gradient at one step in 10 (perturb)",
    "one more gradient per step (perturb)"], report["rules"]
END
sed 's/ gradients = .*//' turns.lua > unlisted.lua
expect 1 "has the entry 'perturb', which no task of the race can feed" ./unlisted.lua --tasks matrix

# ---- the same number of gradients: a rule with two per step gets half as many steps
expect 0 "by gradients to target:" sgd sgd+sam sgd+looksam --tasks matrix,spirals --steps 60 \
    --trials 1 --seeds 6 -o twice.html --json twice.json
check page twice.json twice.html
expect 0 "by gradients to target:" --from twice.json -o again.html
check cmp twice.html again.html
sed 's/"gradients": 2}/"gradients": "x"}/' twice.json > bad.json
expect 1 "'gradients' must be a number" --from bad.json -o bad.html

# ---- few trials: all of them search the rate. Decays are tried once rates around the best one were
for trials in 4 6 9; do
    expect 0 "wrote few.html" adamw sgd lion --tasks matrix --steps 22 --seeds 6 --trials $trials \
        -o few.html --json few.json
    check "$python" - $trials <<'END'
import json, sys
trials = int(sys.argv[1])
for x in json.load(open("few.json"))["results"]:
    rates, decays = [t["factor"] for t in x["trials"]], [t["decay"] for t in x["trials"]]
    best = rates[x["best"]]
    assert len(rates) == trials, x
    assert x["rate_at_end"] == (not min(rates) < best < max(rates)), x
    if trials < 6:
        assert len(set(decays)) == 1 and len(set(rates)) == trials, x
    elif len(set(decays)) > 1:
        first = next(i for i, d in enumerate(decays) if d != decays[0])
        assert first >= trials - 2 and min(rates[:first]) < rates[first] < max(rates[:first]), x
        assert len(set(rates[:first])) == first, x
END
done
expect 0 "decay is not tuned with fewer than 6 trials" adamw sgd --tasks matrix \
    --steps 8 --trials 1 --seeds 6 -o few.html
expect 0 "; best rate of sgd and of adamw at the end of the range" adamw sgd --tasks matrix \
    --steps 8 --trials 1 --seeds 6 -o few.html
check grep -q "and of adamw at the end of the range" few.html

# ---- the input `loss`: that of the batch, so this rule has the steps of one that computes it from
# its gradient
cat > polyak.lua <<'END'
return optimizer { name = "polyak", hyper = { lr = 1 }, inputs = { loss = "group" },
  step = function() p = p - lr * 0.1 * loss / (1e-8 + global.dot(g, g)) * g end }
END
expect 0 "wrote loss.html" ./polyak.lua sgd --tasks matrix --steps 22 --trials 3 --seeds 6 \
    -o loss.html --json loss.json
check "$python" -c 'import json
polyak, sgd = json.load(open("loss.json"))["results"]
assert all(r["done"] and r["loss"][-1] < 0.9 * r["loss"][0] for r in polyak["runs"]), polyak'
cat > weighed.lua <<'END'
return wrapper { name = "weighed", inputs = { loss = "group" },
    step = function() g = g * loss inner() end }
END
expect 0 "wrote loss.html" ./polyak.lua+./weighed.lua sgd --tasks matrix --steps 8 --trials 1 \
    --seeds 6 -o loss.html
sed 's/"group"/"elem"/' polyak.lua > other.lua
expect 1 "needs the input 'loss', which no task of the race provides; a race provides loss = \
\"group\"" ./other.lua

# ---- a rule without an average before its first step: the first loss is that of the initial
# weights
cat > late.lua <<'END'
return optimizer { name = "late", hyper = { lr = 0.01 },
    state = { train = zeros, n = zeros "tensor" },
  step = function() n, p = n + 1, p - lr * g end,
  to_eval = function() train, p = p, p * (n / n) end,
  to_train = function() p = train end }
END
expect 0 "wrote late.html" ./late.lua sgd --tasks matrix --steps 8 --trials 1 --seeds 6 \
    -o late.html --json late.json
check "$python" -c 'import json
late, sgd = json.load(open("late.json"))["results"]
assert [r["loss"][0] for r in late["runs"]] == [r["loss"][0] for r in sgd["runs"]], late'
expect 0 "wrote again.html" --from late.json -o again.html

# ---- hyperparameters and options of one rule: they change the runs, and rates and decays start
# there
expect 0 "wrote own.html" adamw 'adamw(beta2=0.5)' 'adamw(beta2=0.999)' \
    'adamw(amsgrad=true)+clip(1)' 'adamw+clip(1)' 'adamw(lr=0.1, weight_decay=0.5)' --tasks matrix \
    --steps 8 --trials 1 --seeds 6 -o own.html --json own.json
check "$python" - <<'END'
import json
plain, other, same, ams, clip, rate = json.load(open("own.json"))["results"]
losses = [[run["loss"] for run in x["runs"]] for x in (plain, other, same, ams, clip, rate)]
assert losses[0] == losses[2] != losses[1] and losses[3] != losses[4], losses
assert (rate["trials"][0]["rate"], rate["trials"][0]["decay"]) == (0.1, 0.5), rate["trials"]
END
expect 0 "wrote again.html" --from own.json -o again.html
check cmp own.html again.html
# decays of fallback rules stay as set; a file may have parentheses in its name
cp "$root/specs/sgd.lua" 'own(1).lua'
expect 0 "wrote rest.html" muon 'muon(adamw.weight_decay=9)' './own(1).lua+clip(1)' \
    --tasks spirals --steps 8 --trials 1 --seeds 6 -o rest.html --json rest.json
check "$python" -c 'import json
plain, rest, _ = json.load(open("rest.json"))["results"]
assert plain["runs"][0]["loss"] != rest["runs"][0]["loss"], plain'
expect 1 "beta2 = 2 is outside its range" 'adamw(beta2=2)' --tasks matrix
expect 1 "unknown hyperparameter or option 'beta'; did you mean 'beta1'" 'adamw(beta=0.9)' \
    --tasks matrix
expect 1 "nothing reads the hyperparameter 'momentum' with momentum_buffer=false" \
    'sgd(momentum_buffer=false,momentum=0.5)' --tasks matrix
expect 1 "settings are NAME=VALUE" 'adamw(0.9)' --tasks matrix
expect 1 "end with ')'" 'adamw(beta2=0.9' --tasks matrix
expect 1 "beta2 must be a number, not 'x'" 'adamw(beta2=x)' --tasks matrix

# ---- Ctrl-C leaves a valid report
check "$python" - "$OPTC" <<'END'
import json, signal, subprocess, sys, time
race = subprocess.Popen([sys.argv[1], "race", "sgd", "adamw", "--tasks", "matrix,text",
                         "--threads", "1", "--json",
                         "stopped.json", "-o", "stopped.html"], stdout=subprocess.PIPE)
time.sleep(1)
race.send_signal(signal.SIGINT)
out, _ = race.communicate(timeout=20)
report = json.load(open("stopped.json"))
assert race.returncode == 130 and report["interrupted"] and b"interrupted" in out, \
    (race.returncode, out)
assert "interrupted" in open("stopped.html").read()
END
check page stopped.json stopped.html

# ---- messages
expect 0 "6 seeds cannot separate any two of 9 rules; use --seeds 7 or more" adam adamw sgd lion \
    muon lamb adan nadam radam --seeds 6 --tasks matrix --steps 1 --trials 1 -o many.html
expect 2 "no rule is given"
expect 1 "adamx" adamx
expect 1 "No such file" ./none.lua
expect 1 "sophia has the entry 'update_hessian'" adamw sophia
expect 2 "adamw is named twice" adamw adamw
expect 2 "must be a whole number from 1" adamw --seeds 0
expect 2 "a race has 6 to 64 seeds" adamw --seeds 5
expect 2 "--seed 2147483647: at most 1999999995 with 6 seeds" sgd --tasks matrix --seeds 6 \
    --seed 2147483647
expect 2 "--seed 1999999996: at most 1999999995 with 6 seeds" sgd --tasks matrix --seeds 6 \
    --seed 1999999996
expect 0 "wrote last.html" sgd --tasks matrix --seeds 6 --trials 1 --steps 2 --seed 1999999995 \
    --json last.json -o last.html
expect 0 "wrote again.html" --from last.json -o again.html
check page last.json last.html
check cmp last.html again.html
expect 2 "--seed '2147483648' must be a whole number from 1" sgd --seed 2147483648
for option in seeds trials steps threads; do
    expect 2 "--$option 2147483647: " sgd --tasks matrix --$option 2147483647
    expect 2 "--$option '99999999999999999999' must be a whole number" sgd --$option \
        99999999999999999999
done
expect 2 "must be a number above 0" adamw --tasks matrix --target nan
expect 2 "--target needs one task" adamw --target 1
expect 2 "did you mean 'spirals'" adamw --tasks spiral
expect 2 "--schedule knows linear and constant" adamw --schedule cosine
expect 1 "cannot write none/a.html" adamw -o none/a.html
expect 1 "cannot read none.json" --from none.json
expect 2 "it takes no rules" --from one.json adamw
printf '{"format": "optc-race 1", "seeds": [1,]}' > bad.json
expect 1 "bad.json:1: the text is not JSON" --from bad.json
printf '{"format": "optc-race 1", "most_trials": 4, "seeds": 7}' > bad.json
expect 1 "'seeds' must be a list" --from bad.json
sed 's/"best": [0-9]*/"best": 77/' one.json > bad.json
expect 1 "'best' must be a whole number" --from bad.json
# spoil LOSS [MEMBER VALUE]: bad.json is one.json with another second loss of adamw on matrix, seed
# 3; `line`: its line
spoil() { "$python" - "$@" > bad.json <<'END'
import json, sys
loss, *member = sys.argv[1:]
report = json.load(open("one.json"))
run = report["results"][0]["runs"][2]
assert run["done"] and not run["diverged"] and run["seed"] == 3
run["loss"][1] = "LOSS"
if member:
    run[member[0]] = json.loads(member[1])
before, after = json.dumps(report, indent=1).split('"LOSS"')
open("line", "w").write(str(before.count("\n") + 1))
print(before + loss + after)
END
}
for loss in '"x"' '"1"' null true '[1]' '{}' 1e999; do
    spoil "$loss"
    expect 1 "bad.json:$(cat line): 'loss' must be a list of numbers: item 2 of adamw on matrix, \
seed 3, is " \
        --from bad.json -o bad.html
done
spoil '"x"' diverged true
expect 1 "seed 3, is a text" --from bad.json -o bad.html
spoil null diverged true
expect 0 "wrote bad.html" --from bad.json -o bad.html --json ended.json
check "$python" -c 'import json
run = json.load(open("ended.json"))["results"][0]["runs"][2]
assert run["diverged"] and len(run["loss"]) == 1, run'
check page ended.json bad.html
spoil null done false
expect 0 "wrote bad.html" --from bad.json -o bad.html
spoil 1 done '"yes"'
expect 1 "'done' must be true or false" --from bad.json -o bad.html
sed 's/"tuning_seeds": \[[0-9]*/"tuning_seeds": ["x"/' one.json > bad.json
expect 1 "'tuning_seeds' must be a list of whole numbers" --from bad.json -o bad.html
check test ! -e race.html
cd "$root" && check sh tests/parts/roofline.sh
echo "race: $passed passed, $failed failed"
[ $failed = 0 ]
