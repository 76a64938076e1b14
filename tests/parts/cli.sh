#!/bin/sh
# Tests the command line as scripts use it: exit codes, messages and files. Results do not depend on
# the machine's GPU, cores or load.
#   OPTC   the command
#   FAKES  the folder with crowd.so (tests/preload)
set -u
passed=0 failed=0 root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OPTC_CACHE="$work/cache"

# expect CODE PART ARGS…: the command exits with CODE and its output contains PART
expect() {
    code=$1 part=$2
    shift 2
    out=$("$OPTC" "$@" </dev/null 2>&1)
    got=$?
    if [ "$got" = "$code" ] && printf '%s' "$out" | grep -qF -- "$part"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'optc %s: exit %s (wanted %s), wanted "%s" in:\n%s\n' "$*" "$got" "$code" "$part" \
            "$out" | head -20
    fi
}
# release CODE PART ARG…: the same with the program of the release figures
release() {
    command=$OPTC
    OPTC=${OPTC%/*}/bench-release
    expect "$@"
    OPTC=$command
}

expect 0 "usage" --help
expect 2 "usage"
for c in list check try explain emit compile ship dump verify bench race tune cache checkpoint \
    doctor new version; do
    expect 0 "optc $c" help "$c"
    expect 0 "optc $c" "$c" --help
done
expect 0 "--path DIR:DIR" --help
for c in check explain "explain --full"; do
    expect 0 "note: clip changes the gradient of 'step' only: 'perturb' of sam reads it" $c \
        adamw+sam+clip
    for rule in adamw+clip+sam adamw+clip adamw+sam+ema; do
        if "$OPTC" $c $rule 2>&1 | grep -F "gradient of 'step'"; then failed=$((failed + 1)); fi
    done
done
cat > "$work/arrays.lua" <<'EOS'
return optimizer { name = "arrays", hyper = { lr = 1 }, inputs = { hess = "elem", loss = "group" },
  step = function() p = p - lr * loss * g / hess end }
EOS
for c in check explain; do
    expect 0 "note: accumulate takes the mean of scalar inputs only: 'hess'" $c \
        "$work/arrays.lua+accumulate"
done
for c in list check explain emit compile ship dump verify bench tune
    do expect 0 "folders with your own specs" help \
    "$c"; done
expect 2 "did you mean 'check'" chek adamw
expect 2 "--wiht" check adamw --wiht clip
expect 0 "adafactor" list
expect 0 "lookahead" list --wrappers
expect 0 "Loshchilov" list adamw
expect 0 "step limited" list
expect 0 "rules (8)" list '*muon*'
expect 1 "no name fits 'zz*'" list 'zz*'
expect 1 "no optimizer 'AdamW8bit' in the library; write 'adamw' with the storage types state=q8" \
    check AdamW8bit
expect 1 "unknown rule or wrapper 'Lookahead_Adam'; write 'adam+lookahead'" show Lookahead_Adam
check_width() { "$OPTC" list | awk "{ gsub(/[\200-\277]/, \"\") } length > 100" | grep . &&
    { failed=$((failed + 1)); echo "list: more than 100 columns"; } || passed=$((passed + 1)); }
check_width
expect 1 "nothing" list nothing
expect 0 "28 bytes per element" check adamw
expect 0 "ok" check adamw lamb 'adafactor'
expect 1 "adamx" check adamx lamb
expect 1 "No such file" check ./none.lua
expect 1 "Is a directory" check ./tests
expect 0 "3 passes" explain --full adamw --with 'clip(1),cautious,ema(0.999)' --bandwidth 100
mkdir "$work/own" "$work/own/wrappers"
printf 'return optimizer { name = "ours", hyper = { lr = 0.1 },'\
' step = function() p = p - lr * g end }\n' \
    > "$work/own/ours.lua"
printf 'return wrapper { name = "half", step = function() g = 0.5 * g inner() end }\n' > \
    "$work/own/wrappers/half.lua"
expect 0 "12 bytes per element" check ours --with half --path "$work/none:$work/own"
expect 0 "12 bytes per element" explain --full ours --path "$work/own" --bandwidth 1
expect 1 "ours" check ours
cat > "$work/trap.lua" <<'END'
return optimizer { name = "trap", step = function() p = p - g end,
  matrix = function() p = p - solve(gram(g), g) end }
END
expect 0 "trap.lua:2: solve(A, B) uses only the lower triangle" check "$work/trap.lua"
expect 0 "trap.lua:2: solve(A, B) uses only the lower triangle" explain "$work/trap.lua" \
    --bandwidth 10
expect 1 "no wrapper 'clop'" check adamw --with 'clop(1)'
expect 1 "outside the range" check adamw --with 'ema(2)'
expect 1 "expected wrapper" check adamw --with 'ema(0.9'
# try: a rule that does nothing for matrices and divides by zero, and one whose numbers cannot be
# trusted
cat > "$work/still.lua" <<'END'
return optimizer { name = "still", hyper = { lr = 0.1 }, state = { s = zeros },
  step = function() s = 0 * s p = p - lr * g / norm(g) end, matrix = function() s = 0 * s end }
END
cat > "$work/noisy.lua" <<'END'
return optimizer { name = "noisy", hyper = { lr = 0.1 },
    step = function() p = p - lr * ((g + 1e7) - 1e7) end,
  matrix = function() p = p - mm(power(gram(g) - eye(1e9, 'rows'), -1/2), g) end }
END
tried() { OPTC_CFLAGS=-O1 "$OPTC" try "$1" > "$work/try" 2>&1; got=$?; shift; for part; do
    [ $got = 1 ] && grep -qF -- "$part" "$work/try" && passed=$((passed + 1)) || {
        failed=$((failed + 1)); echo "optc try: exit $got, wanted 1 and '$part' in:"
            cat "$work/try"; }; done; }
tried "$work/still.lua" "problem: ordinary gradients never move square (6x6)" \
    "note: the state 's' never changes" "problem: zero gradients make parameters NaN or infinite: \
scalar (rank 0), single (1), vector (7)"
tried "$work/noisy.lua" "factors of matrices were refused (largest residual inf)" \
    "problem: ordinary gradients make parameters NaN or infinite: square (6x6)"
printf 'return optimizer { name = "far", step = function() p = p - 0.1 * ((g + 1e7) - 1e7) end }' \
    > "$work/far.lua"
tried "$work/far.lua" "problem: ordinary gradients: after 8 steps f32 differs from f64"
expect 0 "ok  no problem was found" try adamw
# try: f64 has the draws of f32, also where states start; constants that f32 cannot hold
cat > "$work/noise.lua" <<'END'
return optimizer { name = "noise", hyper = { lr = { 1e-3, min = 0 }, keep = 0.5, tiny = 1e-60 },
  state = { q = normal(), w = normal "row", low = fill(1e-50) },
  step = function()
    p = p - where(lt(random(), keep), lr * g - 0.1 * normal() + q * w * 0.1 * (g + tiny + 1e-55), 0)
    low = low * 0.5
  end }
END
expect 0 "ok  no problem was found" try "$work/noise.lua"
for part in "noise.lua:4: the constant 1e-55 is 0 in f32" \
    "the hyperparameter tiny = 1e-60 is 0 in f32" \
    "the state 'low' starts at 1e-50, which is 0 in f32"; do
    expect 0 "$part" try "$work/noise.lua"
done
# a starter fits every wrapper; a step that a wrapper cannot take apart is printed in words that it
# can
(cd "$work" && "$OPTC" new starter > /dev/null)
for wrapper in $("$OPTC" list --names --wrappers); do
    expect 0 "" check "$work/starter.lua" --with "$wrapper"
done
# step_as LINE PART [WORDS]: the message about LINE has PART; a spec with the line that it prints is
# accepted
step_as() {
    spec='return optimizer { name = "r", hyper = { lr = 1, wd = 0, d = 1 }, state = { m = zeros },
step = function() m = g; '
    printf '%s' "$spec$1 end }" > "$work/r.lua"
    expect 1 "$2, or leave out the wrapper" check "$work/r.lua" --with cautious_decay
    line=$(printf '%s' "$2" | sed -n "s/^write '\(.*\)'$/\1/p")
    printf '%s' "$spec$line; p = descend(p, 0 * g, lr) end }" > "$work/r.lua"
    [ -z "$line" ] || expect 0 "" check "$work/r.lua" --with cautious_decay
}
step_as 'p = p - lr * m' "write 'p = descend(p, m, lr)'"
step_as 'p = p - (lr / (1 - d * d)) * (m + g)' "write 'p = descend(p, m + g, lr / (1 - d * d))'"
step_as 'p = p - lr / d * m / (sqrt(m) + 1)' "write 'p = descend(p, { m, over = sqrt(m) + 1 }, lr \
/ d)'"
step_as 'p = p - lr * m * g / d' "write 'p = descend(p, { m, times = g, over = d }, lr)'"
step_as 'p = p - lr * m / d / d' "write 'p = descend(p, m / d / d, lr)'"
step_as 'p = p - lr * wd * p' "write 'p = shrink(p, lr * wd)'"
step_as 'p = p - 0.1 * m' "write it with these words"
step_as 'p = p - lr * m - d' "write it with these words"
# try: NaN unless `look` runs at steps 1, 13, 25, …; no move unless `step` then gets a new gradient
cat > "$work/turns.lua" <<'END'
return optimizer { name = "turns", hyper = { lr = 0.1 },
  state = { first = zeros, up = zeros "tensor", n = zeros "tensor" },
  gradients = { { "look", every = 12, offset = 1 }, "step" },
  look = function() first, up, n = g, 1, n + 1 end,
  step = function()
    local ok = where(gt(t, 12 * n), 0, where(gt(12 * n, t + 11), 0, 1))
    p = p - where(gt(up, 0), lr * (g - first), 0) / ok
    up = 0
  end }
END
OPTC_CFLAGS=-O1 "$OPTC" try "$work/turns.lua" > "$work/try" 2>&1 &&
    grep -q "turns: 26 steps" "$work/try" &&
    ! grep -q "stops changing" "$work/try" && passed=$((passed + 1)) || {
    failed=$((failed + 1)); echo "optc try: gradients at one step in 12:"; cat "$work/try"; }
# try: a ring's arrays change at one step in 10, and parameters move from step 11 on
out=$("$OPTC" try adashift 2>&1)
case "$out" in
*changes*|*changing*|*"move no tensor"*) failed=$((failed + 1))
    printf 'optc try adashift:\n%s\n' "$out" ;;
*) passed=$((passed + 1)) ;;
esac
expect 0 "ok  no problem was found" try sgd+looksam
expect 0 "does not reach the parameters" try adamw --with skip
expect 0 "clip" try clip
expect 1 "adamx" try adamx
expect 2 "several specs are given" try adamw sgd
expect 0 "next: optc try $work/trap.lua" check "$work/trap.lua"
# every subcommand accepts a rule and its wrappers in one word, and wrappers by path
cat > "$work/halve.lua" <<'END'
return wrapper { name = 'halve', args = { 'by' }, hyper = { by = 0.5 },
    step = function() g = g * by inner() end }
END
for c in check list explain emit dump bench tune; do
    more=
    case $c in
    bench) more="--device cpu --size 64K --rounds 1" ;;
    tune) more="--device cpu --sizes 2^12 --trials 2 --dry-run" ;;
    esac
    expect 0 "clip(1)" $c 'sgd+clip(1)' $more
    expect 0 "" $c "sgd+$work/halve.lua(0.25)+clip(1)" $more
    expect 1 "no wrapper 'clop'" $c 'sgd+clop(1)' $more
done
expect 0 "32 bytes per element" check 'adamw+clip(1)'
expect 0 "sgd with halve(0.25),clip(1)" explain sgd --with "$work/halve.lua(0.25),clip(1)" \
    --bandwidth 100
expect 1 "none.lua: cannot read" explain sgd --with "$work/none.lua"
expect 1 "expected wrapper" check 'adamw+'
expect 1 "true or false" check adamw --options amsgrad=maybe
expect 0 "step_1_map" emit adamw --target c
expect 0 "__global__" emit lamb --target cuda
expect 2 "--arch is missing" compile adamw
expect 2 "unknown target" emit adamw --target fortran
# the command in a file's head makes the same file, with options of the fallback rule and all digits
# of numbers
again() {
    "$OPTC" emit "$@" > "$work/one.c" 2>/dev/null
    line=$(sed -n '/Generated by: /,/Hash of/p' "$work/one.c" |
        sed '$d; s/^ \* //; s/^Generated by: optc //' |
        tr '\n' ' ')
    eval "\"\$OPTC\" $line" > "$work/two.c" && cmp -s "$work/one.c" "$work/two.c" &&
        passed=$((passed + 1)) || {
        failed=$((failed + 1)); echo "optc $line: another file than that of 'optc emit $*'"
        diff "$work/one.c" "$work/two.c" | head -6; }
}
again muon
again muon --target cuda --options adamw.amsgrad=true,eps=2,a=0.12345678901234567 --with \
    'clip(1),ema(0.999)'
again shampoo --type bf16
expect 0 "optc-ir 2" dump adamw --pass trace
expect 0 "; after fold" dump adamw --pass all
expect 2 "" dump adamw --pass nosuch
expect 0 "1 group" dump adamw --pass schedule
expect 0 "batch 1, matrix_3: tensors 0" dump muon --pass schedule --shape 64x32 --shape 32x64
expect 0 "to owners: g" dump muon --pass schedule --ranks 2 --device cuda --shape 64x32
expect 0 "wait" dump muon --pass schedule --ranks 3 --rank 2 --device cuda --work llama-1b
expect 2 "need --pass schedule" dump adamw --ranks 2
expect 2 "must be a number from 0 to 1" dump adamw --pass schedule --ranks 2 --rank 2
expect 2 "unknown device" dump adamw --pass schedule --device tpu
expect 1 "work" dump adamw --pass schedule --work nosuch
expect 0 "compiler" doctor
expect 0 "0.1.0" version
expect 0 "of best" bench adamw --device cpu --size 64K --rounds 2
cat > "$work/none_there.lua" <<'END'
return optimizer { name = 'none', step = function() p = p - g end,
  matrix = function() p = p - mm(power(gram(g) - eye(1e9, 'rows'), -1/2), g) end }
END
expect 0 "factors of matrices were refused (largest residual inf)" bench "$work/none_there.lua" \
    --device cpu --shape 8x8 --rounds 1
expect 0 "share_of_best" bench sgd --device cpu --size 64K --rounds 2 --json
release 0 "yogi is left out, for the reason above" --all --options amsgrad=true --device cpu \
    --size 4K --rounds 1
release 1 "yogi is left out" --all --options nosuch=1 --device cpu --size 4K --rounds 1
expect 2 "--size" bench adamw --size lots
"$OPTC" dump sgd > "$work/sgd.ir"
expect 1 "this is IR text" bench "$work/sgd.ir" --device cpu --size 4K
expect 2 "--device knows cpu, cuda, cuda:N and best, not 'foo'" bench adamw --device foo
expect 2 "not 'cuda:1x'" bench adamw --device cuda:1x
expect 2 "did you mean 'gpt2-124m'" bench adamw --work gpt2-124
expect 2 "'--work list' describes them" bench adamw --work nosuch
expect 2 "exclude" bench adamw --size 1M --shape 3x3
expect 2 "has its own tensors" bench adamw --work 2^28 --shape 3x3
release 2 "has its own tensors" --suite --tensors 3
release 2 "has its own workloads and rules" --suite adamw
release 2 "has its own workloads and rules" --suite --work 2^28
expect 2 "'jax' is not known: torch, numpy, untuned" bench adamw --against jax
expect 2 "unknown option '--suite'" bench --suite
release 2 "'jax' is not known: torch, numpy, untuned, sharded, mixed, types" adamw --against jax
expect 0 "without tuning results ran" bench sgd --device cpu --size 64K --rounds 1 --against untuned
release 0 "sharded, one rank" adamw+clip"(1)" --device cpu --size 64K --rounds 1 \
    --against sharded
release 0 "two sets of types ran" adamw+clip"(1)" --device cpu --shape 90x50 --shape 64 \
    --types param=bf16 --rounds 1 --against mixed --other-types param=f32,state=bf16
release 1 "needs tensors with one dimension" adamw --device cpu --shape 9x9 --rounds 1 \
    --against mixed
release 1 "there is no such storage type" adamw --device cpu --shape 9x9 --shape 9 --rounds 1 \
    --against mixed --other-types param=f31
release 0 "param=bf16,lost=count" adamw --device cpu --size 64K --types param=bf16 --rounds 1 \
    --against types --other-types param=bf16,lost=count
release 1 "must be f32 and f32" adamw --device cpu --size 64K --rounds 1 --against types \
    --other-types param=bf16
release 2 "belong together" adamw --other-types param=f32
release 2 "belong together" adamw --against types
expect 1 "--size must be that or more" bench adamw --device cpu --work small5000 --size 100
# GPT-2's published counts of parameters
expect 0 "148 tensors,   124439808 elements" bench --work list
expect 0 "112 tensors,   973078528 elements" bench --work list
# types that cannot work, by the defaults of the hyperparameters
expect 0 "adamw.lua:21: state 'v' is an average that moves by 0.001 of the difference in a step, \
less than half a step \
of bf16 (0.00390625): it freezes" explain adamw --state-type bf16 --bandwidth 100
expect 0 "state 'ema.avg' is an average that moves by 0.0001" explain sgd --with "ema(0.9999)" \
    --state-type bf16 --bandwidth 100
expect 0 "a decay of 1e-05 of the parameter in a step is less than half a step of bf16" explain \
    adamw --type bf16 --bandwidth 100
expect 0 "lr = 0.001 rounds away on parameters in bf16 above 0.512; choose types master=low16" \
    explain adamw --type bf16 --bandwidth 100
for types in f32 f16; do              # f16 has eleven bits: 0.001 is enough
    "$OPTC" explain adamw --state-type $types --bandwidth 100 2> "$work/said" > /dev/null
    [ ! -s "$work/said" ] || { cat "$work/said"; echo "a warning about types that work"
        failed=$((failed + 1)); }
done
# --types: for every command that compiles rules
for c in check explain emit compile ship dump bench tune; do expect 0 "--types LIST" help "$c"; done
expect 0 "state m elem q8 0" dump adamw --types state=q8
expect 0 "state v elem q8u 0" dump adamw --types state=q8,m=bf16
expect 0 "state m elem bf16 0" dump adamw --types state=q8,m=bf16
expect 0 " --types ema.avg=bf16" emit adamw --with ema --types state=q8,ema.avg=bf16
expect 0 "types: p bf16, g bf16, state q8, m=bf16" emit adamw --types param=bf16,state=q8,m=bf16
expect 0 "18 bytes per element" check adamw --types state=q8,m=bf16
expect 0 "16 bytes per element" check adamw --state-type f32 --types state=q8
expect 1 "types: the rule 'adamw' has no state 'vmx'; did you mean 'vmax', 'm' or 'v'?" check \
    adamw --types vmx=q8
expect 1 "types: 'q8' is not KEY=TYPE, as in state=q8,ema.avg=bf16" explain adamw --types q8
expect 1 "types: param=q8: block codes are for states only; use bf16" emit adamw --type q8
expect 1 "the state 'a' may be negative and reaches a denominator, root or logarithm" \
    check rmsprop --options centered=true --types state=q8
expect 0 "22 bytes per element" check rmsprop --options centered=true --types state=q8,a=f32
expect 0 "10 bytes per element" check adamw --types param=bf16sr,state=q8
! printf "%s" "$out" | grep -q "nothing reads" || { echo "seed counts as unread"
    failed=$((failed + 1)); }
expect 2 "'f8' is not a type for products (known: f64, f32, tf32, bf16, f16)" explain sgd \
    --products f8
expect 2 "must be a size such as" bench sgd --workspace lots
expect 0 "4 of 512x512" bench dion --device cpu --rounds 1 --threads 1
expect 1 "'--workspace 4G' sets the workspace" bench muon --device cpu --shape 64x64 --rounds 1 \
    --workspace 1K
expect 0 "580 tensors,  1557611200 elements" bench --work list
expect 0 "gpt2-124m at 65" bench adamw adafactor --device cpu --work gpt2-124m --size 64K --rounds 1
expect 0 "the mean of a period of 10 steps; the slowest step takes" bench soap --device cpu \
    --shape 12x8 --rounds 1
expect 0 "the mean of 2 steps of a period of 50" bench shampoo --device cpu --shape 12x8 \
    --rounds 1 --steps 2
expect 0 '"period": 4,' bench soap --device cpu --shape 12x8 --rounds 1 --options \
    interval=4 --steps 2 --json
# --bar: a figure that was not measured misses it
bar() { release "$1" "$2" "$3" --device cpu --size 64K --rounds 1 --threads 1 --bar "$4"; }
bar 1 "bars  ms=1e-06 host_us=1  misses step, host (not measured)" sgd ms=0.000001,host_us=1
bar 2 "need --against torch" sgd torch=2
OPTC_PYTHON=false release 1 "misses torch (not measured)" sgd --device cpu --size 64K \
    --rounds 1 --against torch --bar torch=2
bar 0 "bars  ms=100000 share=1e-09  reached" sgd ms=100000,share=0.000000001
! printf '%s' "$out" | grep -q products || { failed=$((failed + 1))
    echo "bench: products of a rule without any"; }
bar 0 "products in f32, 1024 rows" dion ms=100000
bar 2 "--bar: unknown bar 'speed': use ms, share" sgd ms=1,speed=1
bar 2 "--bar: unknown bar 'suite'" sgd suite=1
bar 2 "--bar: ms=fast must be a number above 0" sgd ms=fast
bar 2 "--bar: ms=0 must be a number above 0" sgd ms=0
bar 2 "--bar: no bar is given" sgd ","
release 0 '"product_gflop_per_s": {"f32": ' dion --device cpu --shape 9x9 --rounds 1 \
    --bar ms=100000 --json
# tests/gpu/matrix_rules.sh: a real row on the CPU; made-up rows that fail, warn or hang, without
# torch; ncu's output
matrix_rules() {
    OPTC_PYTHON=${python:-none} MATRIX_RULES_ARGS='--size 4K --rounds 1 --threads 1 --steps 1' \
        PATH="$work/fake:$PATH" sh tests/gpu/matrix_rules.sh "$@" > "$work/said" 2>&1
    printf '%s %s' $? "$(tr -s ' \n' ' ' < "$work/said")"
}
# holds TEXT PATTERN
holds() {
    case $1 in $2) passed=$((passed + 1)) ;; *) failed=$((failed + 1))
        echo "wanted $2 in: $1" ;; esac
}
mkdir "$work/real" "$work/fake"
ln -s "${OPTC%/*}/bench-release" "$work/real/"
cat > "$work/fake/bench-release" <<'END'
#!/bin/sh
case " $* " in
*" psgd "*) echo "optc: no memory" >&2; exit 1 ;;
*" mousse "*) exit 0 ;;
*" splus "*) echo "optc: warning: bench: splus: 3 of 9 factors of matrices were refused" >&2 ;;
esac
cat <<X
cuda:0: NVIDIA H200
f32 parameters, 3 rounds, medians

  work      rule    tensors      step  GB/s  copy of copy   host    cold   warm
  gpt2-124m shampoo     148  18.500ms   230  4200    5.5% 499.0us  2400ms  900ms
            bars     ms=18 slowest=2 host_us=500 cold_ms=2500  misses step

  copy: device to device
  products in f32, 8192 rows: 51.0 TFLOP/s, 50.0 TFLOP/s after a second of work
X
case " $* " in *" shampoo "*) exit 1 ;; esac
END
cat > "$work/fake/ncu" <<'END'
#!/bin/sh
[ "$1" != --query-metrics ] || exec echo "sm__pipe_tensor_cycles_active Counter"
cat <<'X'
==PROF== Connected to process 7 (/build/optc)
==PROF== Profiling "a" - 0: 0%....50%....100% - 1 pass
  work      rule
"ID","Process ID","Kernel Name","Block Size","dram__throughput","gpu__time_duration","pipe_tensor"
"","","","","%","ns","%"
"0","7","a<int, float>","(256, 1, 1)","30","1,000","80"
"1","7","b","(256, 1, 1)","90","500","0"
"2","7","a<int, float>","(256, 1, 1)","40","500","50"
==PROF== Disconnected from process 7
X
END
cat > "$work/fake/timeout" <<'END'
#!/bin/sh
case " $* " in *" muon "*) exit 124 ;; *" soap "*) exit 137 ;; esac
while [ "$1" != -k ]; do shift; done
shift 3 && exec "$@"
END
chmod +x "$work/fake/bench-release" "$work/fake/ncu" "$work/fake/timeout"
holds "$(MATRIX_RULES_DEVICE=cpu matrix_rules "$work/real" ncu mousse)" \
    "0 *mousse, at * s: *bench-release * mousse --work gpt2-124m *a period of 10; * % of it outsid\
e of stages * mm (mousse.lua:*rows: 1 ran, 0 left out, 0 failed*"
holds "$(matrix_rules "$work/fake" ncu muon psgd soap-f32 shampoo splus-stagger)" "1 *\
FAILED: muon, exit status 124: ended after 360 s shampoo, at * s: * shampoo * --bar ms=18,* bars \
ms=18 * misses \
step products in f32, *FAILED: shampoo, exit status 1 * 75.0 2 70 33 a<int, float> 25.0 1 0 90 b \
*FAILED: psgd, exit status 1 optc: no memory *FAILED: splus-stagger, exit status 0 *were refused*\
soap-f32: left out, no torch cuda:0: NVIDIA H200 *rows: 4 ran, 1 left out, 4 failed*"
holds "$(matrix_rules "$work/fake" soap mousse)" \
    "1 *FAILED: soap, exit status 137: killed, perhaps after 60 s *\
FAILED: mousse, exit status 0: it measured nothing *rows: 2 ran, 0 left out, 2 failed*"
holds "$(matrix_rules "$work/fake" roots)" "1 *roots: left out, no torch *rows: 0 ran, 1 left out, \
0 failed*"
holds "$(python=true matrix_rules "$work/fake" roots)" \
    "1 *FAILED: roots, exit status 0: it measured nothing *"
holds "$(matrix_rules "$work/real" nosuch)" "2 there is no row 'nosuch'; rows: muon soap *"
holds "$(matrix_rules "$work/real" soa.)" "2 there is no row 'soa.'; rows: muon soap *"
holds "$(matrix_rules soap)" "2 there is no soap/bench-release: run make build/bench-release*"
# tests/gpu/all.sh: every case of the suite is in its list; mistakes are found before a process
# starts
for c in $(grep -o 'tcase_create("[^"]*' tests/gpu/test_gpu.c | sed 's/.*"//'); do
    case $c in *-times) continue ;; esac
    holds "$(grep -A3 '^cases=' tests/gpu/all.sh | tr '\n' ' ')" "*[ -]$c:[1-9]*"
done
cat > "$work/fake/gpu-test" <<'X'
#!/bin/sh
echo "$CK_RUN_CASE $OPTC_TEST_SHARE"
[ "$CK_RUN_CASE" != nccl ] || [ "$OPTC_NCCL" = here ] ||
    printf 'skipped: NCCL (none)\nskipped: NCCL (none)\n'
[ "$CK_RUN_CASE" != memory ]
X
chmod +x "$work/fake/gpu-test"
rm "$work/fake/timeout"
all() {
    CI=${3:-} OPTC_NCCL=${4:-here} OPTC_GPU_CASES=$1 OPTC_BLAS=none PATH="$work/fake:$PATH" \
        sh tests/gpu/all.sh "$work/fake" $2 > "$work/said" 2>&1
    printf '%s %s' $? "$(tr -s ' \n' ' ' < "$work/said")"
}
holds "$(all "eigen:2 nccl:1" suite)" "0 \[eigen-1] eigen 1/2 \[eigen-1] exit status 0 *\[eigen-2] \
eigen 2/2 *\
\[nccl-1] NCCL: * nccl 1/1 * 0 failed*"
holds "$(all "eigen:1 nccl:1" suite "" none)" \
    "0 *SKIPPED: nccl-1: NCCL (none) \[nccl-1] * 0 failed, 1 skipped "
holds "$(all "eigen:1 nccl:1" suite 1 none)" "1 *FAILED: nccl-1 SKIPPED: nccl-1: NCCL (none) * 1 \
failed, 1 skipped "
holds "$(all "memory:1 eigen:1" suite)" "1 *FAILED: memory-1 *\[memory-1] exit status 1 * 1 failed*"
holds "$(all "eigen:1" "suite typo")" "2 there is no part 'typo'*"
for c in eigen eigen: eigen:0 eigen:x :2; do
    holds "$(all "$c" suite)" "2 OPTC_GPU_CASES: '$c' must be CASE:NUMBER*"
done
# bars come from the table of the source tree or from a file that --bars names
bars() { printf "$1" > "$work/bars"; }
bars 'optc-bars 1\n# note\n\nsmall5000 sgd share=0.5 host_us=10\n2^28 lion torch=2 suite=0\n'
release 0 "2^28        lion            torch=2   (not in --suite)" --work list \
    --bars "$work/bars"
release 0 "small5000 at 65000" --device cpu --suite --size 64K --rounds 1 --bars "$work/bars"
bars 'optc-bars 2\n'
release 1 "bars:1: a table of bars begins with 'optc-bars 1'" --suite --bars "$work/bars"
bars 'optc-bars 1\nnosuch sgd share=1\n'
release 1 "bars:2: a row is WORK RULE NAME=VALUE…, and WORK one of '--work list', not 'nosuch'" \
    --suite --bars "$work/bars"
for row in 2^28 '2^28 sgd'; do
    bars "optc-bars 1\n$row\n"
    release 1 "bars:2: a row is WORK RULE NAME=VALUE…, and this one has no bar" --suite \
        --bars "$work/bars"
done
bars 'optc-bars 1\n2^28 sgd share=fast\n'
release 1 "bars:2: share=fast must be a number from 0" --suite --bars "$work/bars"
bars 'optc-bars 1\n2^28 sgd speed=1\n'
release 1 "bars:2: unknown bar 'speed'" --suite --bars "$work/bars"
bars 'optc-bars 1\n'
release 1 "--suite runs the rows of a table of bars" --device cpu --suite --bars "$work/bars"
release 1 "No such file" --suite --bars "$work/nosuch"
release 0 "gpt2-1.5b at 58" --device cpu --suite --size 64K --rounds 1
OPTC_NO_CUDA=1
export OPTC_NO_CUDA
expect 1 "no CUDA driver" bench adamw --device cuda
expect 1 "'--device cpu' runs on the CPU" bench adamw --device cuda:0
expect 0 "cpu: " bench adamw --device best --size 64K --rounds 1
unset OPTC_NO_CUDA
# if a peer does not start, refuses, answers nonsense or exits, only its column is missing
peer() { printf '#!/bin/sh\n%s\n' "$1" > "$work/peer" && chmod +x "$work/peer"; }
OPTC_PYTHON="$work/peer"
export OPTC_PYTHON
expect 0 "did not start it (OPTC_PYTHON" bench sgd --device cpu --size 64K --rounds 1 \
    --against torch
peer 'echo none no torch here'
expect 0 "did not start it: no torch here" bench sgd --device cpu --size 64K --rounds 1 \
    --against torch
answers() { peer "echo ready torch 9; while read -r w i r; do case \"\$w \$r\" in $1 *) echo ok;; \
esac; done"; }
answers '"open "*) echo ok fused SGD;; "step "*) echo 250 250000;;'
expect 0 "250 ms" bench sgd --device cpu --size 64K --rounds 1 --against torch
answers '"open "*" soap?interval=4,limit=64") echo ok SOAP;; "step "*[02468]) echo 250 250000;;'
expect 0 "250 ms" bench soap --device cpu --shape 12x8 --rounds 1 --options interval=4,limit=64 \
    --against torch
answers '"open "*) echo none no memory;;'
expect 0 "sgd: nothing: no memory" bench sgd --device cpu --size 64K --rounds 1 --against torch
answers '"open "*) echo ok fused SGD;; "step "*) echo none out of memory;;'
expect 0 "cannot run sgd: out of memory" bench sgd --device cpu --size 64K --rounds 1 \
    --against torch
peer 'echo ready torch 9; read -r w; echo ok fused SGD; read -r w; exit'
expect 0 "did not answer for sgd" bench sgd --device cpu --size 64K --rounds 2 --against torch
unset OPTC_PYTHON
if command -v python3 >/dev/null 2>&1; then
    "$OPTC" bench adamw 'lion+clip(1)' --device cpu --work gpt2-124m --size 64K --rounds 1 --json |
        python3 -m json.tool >/dev/null && passed=$((passed + 1)) ||
        { failed=$((failed + 1)); echo "bench --json is not JSON"; }
fi
# results that are compiled in
builtin=$(cat runtime/tuned/*.txt | grep -c '^[a-z]* [a-z0-9]*,')
cd "$work" || exit 1
# the cache: empty, with one entry, damaged, repaired, pruned, cleared; other files in its folder
# stay
check() { if eval "$2"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "$1"; fi; }
OPTC_CACHE="$work/own-cache"
export OPTC_CACHE
expect 0 "the cache is empty: there is no folder" cache ls
expect 0 '"count": 0' cache ls --json
check "looking made the folder" '[ ! -e "$OPTC_CACHE" ]'
expect 2 "ls, verify, prune or clear" cache
expect 2 "did you mean 'verify'" cache verfy
expect 2 "it takes one action" cache ls clear
expect 2 "clear does not take --older" cache clear --older 30d
expect 2 "ls does not take --delete" cache ls --delete
expect 2 "must be a time" cache prune --older soon --dir .
expect 2 "--max" cache prune --max lots
expect 1 "No such file" cache ls --dir ./none
expect 2 "names no folder" cache ls --dir ''
printf 'return optimizer { name = "mine", hyper = { lr = 0.1 },'\
' step = function() p = p - lr * g * 3 end }\n' \
    > three.lua
for type in f32 f64; do "$OPTC" bench three.lua --device cpu --size 64K --rounds 1 --type $type \
    >/dev/null 2>&1; done
expect 0 "mine, f32 for " cache ls
expect 0 "2 entries, " cache ls
expect 0 '"rule": "mine"' cache ls --json
expect 0 "2 entries, 0 damaged" cache verify
expect 0 "2 entries, " doctor
entry=$(ls "$OPTC_CACHE"/*.so | head -1)
# a valid name for an entry that does not exist
nobody=$(basename "$entry" .so | tr 0-9a-f 0)
echo mine > "$OPTC_CACHE/notes.so"
ln -s "$work/three.lua" "$OPTC_CACHE/$nobody.so"
printf 'X' | dd of="$entry" bs=1 seek=5000 conv=notrunc 2>/dev/null
expect 1 "$(basename "$entry"): its checksum differs" cache verify
expect 1 "1 damaged" cache verify
expect 1 "1 damaged, 1 removed" cache verify --delete
check "the damaged entry is still there" '[ ! -e "$entry" ]'
expect 0 "1 entry, 0 damaged" cache verify
expect 0 "0 entries removed" cache prune --older 1d
touch -d '40 days ago' "$OPTC_CACHE"/[0-9a-f]*.so
expect 0 "40 d" cache ls
expect 0 "1 entry removed" cache prune --older 30d
"$OPTC" bench three.lua --device cpu --size 64K --rounds 1 >/dev/null 2>&1
export OPTC_CACHE_MAX=much
expect 1 "OPTC_CACHE_MAX is 'much'; it must be a size" cache prune
expect 0 "for no limit; the limit shown is the default" cache ls
expect 0 "it must be a size such as 512M or 4G, or 0 for no limit: optc_open refuses it" doctor
expect 1 "OPTC_CACHE_MAX is 'much'" bench three.lua --device cpu
check "a limit that cannot be read gets a hint about devices" \
    '! printf "%s" "$out" | grep -q "shows the devices"'
unset OPTC_CACHE_MAX
expect 1 "shows the devices" bench three.lua --device cuda:99
expect 0 "1 entry removed" cache prune --max 1K
"$OPTC" bench three.lua --device cpu --size 64K --rounds 1 >/dev/null 2>&1
touch "$OPTC_CACHE/.$nobody.abc123"
expect 0 "and 1 unfinished" cache ls
expect 0 "1 entry removed" cache clear
expect 0 "0 entries removed" cache clear
check "a file that is not the cache's was removed" '[ -s "$OPTC_CACHE/notes.so" ] &&
    [ -L "$OPTC_CACHE/$nobody.so" ] &&
    [ -s "$work/three.lua" ]'
check "a leftover outlived clear" '[ ! -e "$OPTC_CACHE/.$nobody.abc123" ]'
chmod g+w "$OPTC_CACHE"
expect 0 "can be written by its group" doctor
expect 0 "this folder is not used" cache ls
OPTC_CACHE="$work/cache"
# tuning results: none yet, merged, a bad file refused completely, exported unchanged, shown
OPTC_TUNE="$work/tuned/mine"
export OPTC_TUNE
a=0123456789abcdef0123456789abcdef b=fedcba9876543210fedcba9876543210
knobs() { echo "threads=$1 vector=4 items=$2 blocks=0 load=0 store=0 grid=0"; }
gpu='device NVIDIA H200 | units 132 | driver 580'
map() { echo "map f32,f32,f32 $1 2^28 $(knobs 256 2) ms=$2 model=2 n=$3 # $4"; }
{ printf 'optc-tune 1\n%s\n' "$gpu"; map $a 1.5 7 'adamw step_1_map'
    map $b 1 3 'lion step_1_map'; } > one.txt
{ printf 'optc-tune 1\n%s\n' "$gpu"; map $a 1.25 1 'adamw step_1_map'
    map $b 1 2 'lion step_1_map'; } > two.txt
for action in export merge show; do
    expect 0 "optc tune $action" help tune $action
    expect 0 "optc tune $action" tune $action --help
done
expect 2 "one command at a time" help bench tune
expect 0 "$builtin result" tune show
expect 1 "no results to export yet" tune export
check "looking made a folder" '[ ! -e tuned ]'
expect 2 "no file is given" tune merge
expect 1 "No such file" tune merge one.txt none.txt
sed 's/threads=/thread=/' two.txt > typo.txt
expect 1 "typo.txt:3: unknown knob 'thread'; did you mean 'threads'?" tune merge one.txt typo.txt
expect 1 "nothing was merged" tune merge one.txt typo.txt
head -c 200 two.txt > cut.txt
expect 1 "cut.txt:3: cut short" tune merge one.txt cut.txt
sed 's/^optc-tune 1/optc-tune 9/' two.txt > newer.txt
expect 1 "newer.txt:1: of another version" tune merge newer.txt one.txt
check "a refused merge left something" '[ ! -e tuned ]'
expect 0 "would be: 2 added" tune merge --dry-run one.txt
check "a dry run left something" '[ ! -e tuned ]'
expect 0 "2 added, 0 replaced, 0 kept as they were in $OPTC_TUNE" tune merge one.txt
expect 0 "0 added, 1 replaced, 1 kept" tune merge two.txt
expect 0 "0 added, 0 replaced, 2 kept" tune merge one.txt two.txt
"$OPTC" tune merge --into other.txt two.txt one.txt >/dev/null && "$OPTC" tune export > back.txt
check "the order of a merge shows" 'cmp -s other.txt back.txt'
check "an export is not what was merged" '[ "$(grep -c . back.txt)" = 4 ] &&
    grep -q "ms=1.25 model=2 n=1 # adamw" back.txt && grep -q "ms=1 model=2 n=3 # lion" back.txt'
piped=$("$OPTC" tune merge --into third.txt - < back.txt)
check "merging from a pipe" \
    '[ "$piped" = "2 added, 0 replaced, 0 kept as they were in third.txt" ] &&
    cmp -s third.txt back.txt'
expect 0 "2 results written to out.txt" tune export -o out.txt --device h200
check "export -o differs from export" 'cmp -s out.txt back.txt'
expect 1 "no results of a device 'A100' (there are: NVIDIA H200)" tune export --device A100
expect 1 "Is a directory" tune export -o .
expect 2 "it takes no arguments" tune export out.txt
# counts that no run can have
for bad in n=2147483647 n=0 n=100001; do
    sed "s/n=7/$bad/" one.txt > counts.txt
    expect 1 "counts.txt:3: $bad must be a whole number from 1 to 100000" tune merge counts.txt
done
printf 'optc-tune 1\ndevice A CPU | units 2 | driver 0\ncpu f32,f32,f32 %s 2^12 %s\n' $a \
    "threads=3 vector=1 items=1 blocks=0 load=0 store=0 grid=0 ms=1 model=2 n=3" > counts.txt
expect 1 "counts.txt:3: threads=3: no run on 2 units has that many" tune merge counts.txt
expect 0 "$((builtin + 2)) results" tune show
expect 0 "+60.0 %" tune show
check "export --all lacks the built-in results" \
    '[ "$("$OPTC" tune export --all | grep -c "n=.* #")" = $((builtin + 2)) ]'
# what earlier versions kept: a site's results and trials
cp one.txt site
export OPTC_TUNE_SITE="$work/site"
expect 0 "a site's results are not read any more; take them into your own: optc tune merge" \
    tune show
unset OPTC_TUNE_SITE
echo 'optc-trials 1' > old.trials
expect 1 "old.trials:1: these are trials, not results; no version reads them" tune merge old.trials
expect 0 "map     lion step_1_map" tune show back.txt
expect 1 "typo.txt:3" tune show typo.txt
expect 1 "none.txt" tune show none.txt
expect 0 "1.25   +60.0 %     1  user      threads=256 vector=4 items=2 blocks=0" \
    tune show --stage adamw
expect 0 "1 result" tune show --stage 01234567
expect 1 "unknown stage 'adumw'; did you mean" tune show --stage "adumw"
expect 2 "--stage names no stage" tune show --stage ''
# --json of the commands that print facts: one form of a rule for list, show, explain and check
if command -v python3 >/dev/null 2>&1; then
    facts() { "$OPTC" $1 --json 2>/dev/null | python3 -c "import json, sys
x = json.load(sys.stdin)
assert ($2), str(x)[:300]" && passed=$((passed + 1)) ||
            { failed=$((failed + 1)); echo "$1 --json: not $2"; }; }
    facts version "x == {'optc': '$("$OPTC" version | cut -d' ' -f2)'}"
    facts doctor "x['tuned'][0].endswith('built in') and 'wrappers' in x['optc'][0]"
    facts list "len(x) > 120 and x[0]['state'] == '8'"
    facts "list --wrappers" "x[0]['name'].startswith('accumulate') and 'state' not in x[0]"
    facts "list adamw ema" "[y['kind'] for y in x] == ['rule', 'wrapper']"
    facts "show adamw" \
        "[s['name'] for s in x['states']][:2] == ['m', 'v'] and 'optimizer' in x['code']"
    facts "show ema" "x['name'] == 'ema' and [s['name'] for s in x['states']][0] == 'avg'"
    facts "explain lion --bandwidth 100 --shape 64x64" \
        "0 <= x['predicted'][0]['bytes'] - 20 * 4096 < 99 and
        x['predicted'][0]['seconds'] == x['predicted'][0]['bytes'] / 1e11 and
        x['entries'][0]['variants'][0]['bytes_per_element'] == 20"
    facts "check adamw nosuch" "[y['ok'] for y in x] == [True, False] and 'nosuch' in x[1]['error']"
    expect 2 "exclude each other" show adamw --code --json
fi
if command -v python3 >/dev/null 2>&1; then
    check "show --json is not JSON" \
        '"$OPTC" tune show --json 2>/dev/null | python3 -m json.tool >/dev/null'
fi
OPTC_TUNE=
expect 1 "OPTC_TUNE is empty" tune merge one.txt
OPTC_TUNE="$work"
expect 1 "Is a directory" tune merge one.txt
OPTC_TUNE="$work/one.txt/tune"
expect 1 "Not a directory" tune merge two.txt
# a search on the CPU: stored, used, not repeated, resumed after an interrupt
OPTC_TUNE="$work/searched/tune"
expect 2 "--budget must be a time" tune sgd --device cpu --budget soon
expect 2 "must be a whole number from 1" tune sgd --device cpu --trials none
expect 2 "only --slowdown and --into are for it" tune --live --trials 3 -- true
expect 0 "up to 4 launches a search (" tune sgd --device cpu --sizes 2^12 --trials 4 --dry-run
expect 2 "--sizes must be element counts" tune sgd --device cpu --sizes 2^x
expect 2 "--sizes must be element counts" tune sgd --device cpu --sizes 64M,,
for sizes in '' 2^ 2^-1 2^1.5 2^37 17179869185G 1K,2^4K
    do expect 2 "--sizes must be element counts" tune sgd \
    --device cpu --sizes "$sizes"; done
expect 2 "--into names no file" tune sgd --device cpu --into ''
expect 1 "there is no device 'tpu'" tune sgd --device tpu
expect 1 "there is no device 'cuda:4294967296'" tune sgd --device cuda:4294967296
expect 1 "nosuch" tune nosuch --device cpu
expect 1 "on the CPU a rule is tuned as a whole" tune sgd --device cpu --stage step_1
expect 1 "nosuch" tune sgd nosuch --device cpu
check "a rule was tuned before the next was looked for" \
    '! "$OPTC" tune sgd nosuch --device cpu 2>/dev/null | grep -q sgd'
expect 1 "results could not be kept" tune sgd --device cpu --sizes 2^12 --into /proc/optc/tune
OPTC_TUNE=
expect 0 "1 stage searched" tune sgd --device cpu --sizes 2^12 --trials 1000 --dry-run
OPTC_TUNE="$work/searched/tune"
expect 0 "share their results with 4K" tune sgd --device cpu --sizes 2^12,5000,2^12 --trials \
    1000 --dry-run
expect 0 "sgd+clip(1)" tune 'sgd+clip(1)' --device cpu --sizes 2^12 --trials 1000 --dry-run
expect 2 "--live takes the program to run" tune --live
expect 2 "only --slowdown and --into are for it" tune --live --dry-run -- true
expect 2 "--slowdown is for --live" tune sgd --device cpu --slowdown 5%
expect 2 "--slowdown must be a share" tune --live --slowdown lots -- true
expect 1 "cannot be started" tune --live -- ./no-such-program
check "--live does not tell the program" \
    '[ "$("$OPTC" tune --live --slowdown 3% -- sh -c "echo \$OPTC_TUNE_LIVE")" = 0.03 ]'
# crowd.so simulates how long threads wait for a core: one thread that only waits, and one that
# never waits
crowd() { export LD_PRELOAD="$FAKES/crowd.so" OMP_NUM_THREADS=1 CROWD=$1; }
crowd 1
expect 0 "1 not kept: the machine was busy" tune sgd --device cpu --sizes 2^16 --trials 2
expect 0 "1 not kept: the machine was busy" tune sgd --device cpu --sizes 2^16 --trials 2
expect 0 "the machine was busy" bench sgd --device cpu --size 64K --rounds 3
expect 0 '"busy": true' bench sgd --device cpu --size 64K --rounds 3 --json
crowd 0
expect 0 '"busy": false' bench sgd --device cpu --size 64K --rounds 3 --json
expect 0 "kept in $work/searched/calm" tune sgd --device cpu --sizes 2^16 --trials 2 --into \
    "$work/searched/calm"
check "a result of a calm machine was not kept" '[ -s "$work/searched/calm" ]'
unset LD_PRELOAD OMP_NUM_THREADS CROWD
expect 0 "1 stage searched" tune sgd --device cpu --busy --sizes 2^16 --trials 1000 --log tried.txt
check "the log does not have the model's launch" 'grep -q " n=[0-9]* from=model # sgd$" tried.txt'
expect 0 "2 done before" tune sgd sgd --device cpu --busy --sizes 2^16 --trials 1000
expect 0 "cpu     sgd" tune show
expect 0 "1 result" tune show --stage sgd
expect 1 "has your own results" tune export -o "$OPTC_TUNE"
check "a search without a file of results" '[ -s "$OPTC_TUNE" ]'
cp "$OPTC_TUNE" before
expect 0 "1 stage searched" tune sgd --device cpu --sizes 2^16 --trials 1000 --again --dry-run
# however short the budget is, there is no error and every rule is tried
expect 0 "had no time left" tune sgd adamw --device cpu --budget 0.05s --dry-run --again
check "a dry run changed the results" 'cmp -s "$OPTC_TUNE" before'
# interrupted as soon as one more result is stored: the other rules would take minutes
before=$(grep -c "^cpu" "$OPTC_TUNE")
"$OPTC" tune --device cpu --busy --sizes 2^16,2^22 --trials 1000 > interrupted.txt 2>&1 & pid=$!
while kill -0 $pid 2>/dev/null && [ "$(grep -c "^cpu" "$OPTC_TUNE")" = "$before" ]
    do sleep 0.02; done
kill -INT $pid
wait $pid
echo $? > interrupted.rc
check "an interrupt is not told by the exit code" '[ "$(cat interrupted.rc)" = 130 ]'
check "an interrupt lost the results" 'grep -q "kept" interrupted.txt &&
    [ "$(grep -c "^cpu" "$OPTC_TUNE")" -gt "$before" ]'
printf 'nonsense\n' > "$OPTC_TUNE"
expect 1 "tune:1: not a file of tuning results" tune sgd --device cpu --sizes 2^16
OPTC_TUNE=
if "$OPTC" doctor | grep '^nvrtc' | grep -q 'compiles for'; then
    expect 0 "sm_90: " compile adamw --arch sm_90 -o a.cubin
    expect 2 "expected sm_90" compile adamw --arch sm_4294967386
    mkdir empty && expect 1 "cannot write empty: " compile adamw --arch sm_90 -o empty
    check "a folder was taken for a file that could not be written" '[ -d empty ]'
    expect 0 "bytes of PTX" compile adamw --arch sm_90 --ptx -o a.ptx
    [ "$(tr -d '\000' < a.ptx | wc -c)" = "$(wc -c < a.ptx)" ] && grep -q '^.target sm_90' a.ptx &&
        passed=$((passed + 1)) || { failed=$((failed + 1)); echo "PTX is no text"; }
    expect 2 "does not compile for sm_7" compile adamw --arch sm_7
    expect 1 "adamx" compile adamx --arch sm_90
else
    OPTC_NO_NVRTC=1
    export OPTC_NO_NVRTC
    expect 1 "NVRTC was not found" compile adamw --arch sm_90
    unset OPTC_NO_NVRTC
fi
OPTC_CC=/no/such/cc
export OPTC_CC
expect 1 "reference evaluator" bench adamw --device cpu --size 2M --with 'ema(0.5)' --rounds 1
release 0 '"rule": "soap",' --all --device cpu --shape 6x4 --rounds 1 \
    --steps 1 --json
for k in elementwise reductions products; do
    case $out in
    *"\"kind\": \"$k\""*) passed=$((passed + 1)) ;;
    *) failed=$((failed + 1)) && echo "bench-release --all: no $k" ;;
    esac
done
unset OPTC_CC
release 2 "every rule of the library" --all adamw
release 2 "every rule of the library" --all --suite
expect 0 "mine.lua" new mine
expect 0 "ok" check mine.lua
expect 1 "exists" new mine
expect 0 "" new mine --force
expect 0 "--with './half.lua(0.1)'" new half --wrapper -o -             # the path as it was given
expect 0 "half.lua" new half --wrapper
expect 0 "ok" check adamw --with './half.lua(0.1)'
"$OPTC" dump adamw --pass fold > a.ir && expect 0 "optc-ir 2" dump a.ir --pass fold
case $("$OPTC" check ./a.ir) in *"optc try"*) failed=$((failed + 1)) &&
    echo "check of IR text names optc try" ;;
*) passed=$((passed + 1)) ;;
esac
"$OPTC" dump a.ir --pass fold | cmp -s - a.ir && passed=$((passed + 1)) ||
    { failed=$((failed + 1)); echo "IR does not read back as it was"; }
"$OPTC" dump soap --pass fold > b.ir && expect 0 "optc-ir 3" dump b.ir --pass fold
"$OPTC" dump adashift --pass fold > b.ir && expect 0 "optc-ir 3" dump b.ir --pass fold
printf 'return optimizer { name = "x",'\
' step = function()\n  p = p - lrr * g\nend, hyper = { lr = 1 } }\n' > bad.lua
expect 1 "bad.lua:2: 'lrr' is not declared; did you mean 'lr'" check bad.lua
expect 1 "   2 | p = p - lrr * g" check bad.lua
"$OPTC" emit adamw > out.c 2>/dev/null && cc -c -Wall out.c -o out.o && passed=$((passed + 1)) ||
    { failed=$((failed + 1)); echo "emitted C does not compile"; }
"$OPTC" emit adamw > /dev/full 2>/dev/null && { failed=$((failed + 1))
    echo "a full disk went unnoticed"; } ||
    passed=$((passed + 1))
"$OPTC" list | head -1 > /dev/null; passed=$((passed + 1))
# a check takes less than 20 ms of CPU time (CPU time, so that a busy machine does not matter)
spent() { awk 'NR == 2 { gsub("[ms]", " "); print int(($1 * 60 + $2 + $3 * 60 + $4) * 1000) }' \
    times.txt; }
times > times.txt
t0=$(spent)
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20
    do "$OPTC" check came >/dev/null 2>&1; done
times > times.txt
ms=$((($(spent) - t0) / 20))
[ "$ms" -lt 20 ] && passed=$((passed + 1)) || { failed=$((failed + 1))
    echo "a check took $ms ms"; }
# tools/release.sh ends when shipping GPU code fails, and drops the packages of an earlier run
mkdir -p "$work/bin" "$work/release/python/gpu/old"
printf '#!/bin/sh\n' > "$work/bin/make"
printf '#!/bin/sh\necho first line\nexit 1\n' > "$work/release/python/optc"
chmod +x "$work/bin/make" "$work/release/python/optc"
out=$(cd "$root" && PATH="$work/bin:$PATH" BUILD="$work/release" PYTHON=false sh tools/release.sh \
    "$work/dist" 2>&1)
if [ $? != 0 ] && ! printf '%s' "$out" | grep -q '^== wheel' &&
    [ ! -e "$work/release/python/gpu/old" ]; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    printf 'tools/release.sh went on after a failure:\n%s\n' "$out"
fi
# control characters in a file name must not reach the terminal
hostile=$(printf 'a\033[2Jb\233c.lua')
expect 0 "wrote a [2Jb c.lua; next: optc check ./a [2Jb c.lua" new mine -o "$hostile"
expect 0 "ok  ./a [2Jb c.lua  step" check "./$hostile"
[ "$("$OPTC" list | tr -d '\n' | grep -c "$(printf '\033')")" = 0 ] && passed=$((passed + 1)) ||
    { failed=$((failed + 1)); echo "colour on a pipe"; }

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
