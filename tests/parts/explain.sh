#!/bin/sh
# Tests the output of `optc explain`: whole pages against tests/specs/explain, the stored bandwidth,
# and the device that it reports.
#   OPTC      the command
#   FAKES     the folder of the fake drivers (tests/cuda)
#   UPDATE=1  writes the pages again
set -u
passed=0 failed=0
here=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OPTC_CACHE="$work/cache" OPTC_NO_CUDA=1
mkdir -m 700 "$OPTC_CACHE"
check() { if eval "$2"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "$1"; fi; }
explain() { "$OPTC" explain --full "$@" > "$work/said" 2>&1; }

# pages: lines of the spec, formulas, reasons
page() {
    name=$1
    shift
    explain "$@" --bandwidth 100 || echo "exit code $?" >> "$work/said"
    [ -z "${UPDATE:-}" ] || cp "$work/said" "tests/specs/explain/$name.txt"
    check "explain $*: not as in tests/specs/explain/$name.txt (UPDATE=1 sh tests/parts/explain.sh \
writes it anew)" \
        'diff "tests/specs/explain/$name.txt" "$work/said"'
}
page lamb lamb
page adafactor adafactor
page adamw_clip adamw --with 'clip(1)'
page sgd_lookahead sgd --with 'lookahead(5)'
page muon muon --options form=plain,steps=2 --gpu --tera 750 --shape 2048x8192 --shape 768
# one product in tf32, on a GPU and on a CPU, which computes it in f32
cat > "$work/mixed.lua" <<'END'
return optimizer { name = "mixed", state = { L = zeros "rows" }, step = function() p = p - g end,
  matrix = function()
    L = gram(g)
    p = p - mm(L, g, { products = "tf32" })
  end }
END
page one_in_tf32 "$work/mixed.lua" --gpu --tera 50
explain "$work/mixed.lua" --bandwidth 100 --tera 1
check "explain mixed.lua: a CPU computes in tf32" \
    'grep -q "product, rows x cols over rows, in tf32 on a GPU" "$work/said"'
explain "$work/mixed.lua" --bandwidth 100 --tera 1 --products f32
check "explain --products f32: a product in tf32" '! grep -q "tf32 on a GPU" "$work/said" &&
    grep -q "products  f32;" "$work/said"'
# the short form: at most two screens; with --shape only the variants of that shape
explain() { "$OPTC" explain "$@" > "$work/said" 2>&1; }
page short_adamw_clip adamw --with 'clip(1)'
page short_muon muon --gpu --tera 750
page short_muon_shape muon --gpu --tera 750 --shape 2048x8192
page short_soap soap --tera 1
# types of states as stored, bytes with scales, and the pass that block codes add
page short_types adamw --with ema --types param=bf16,state=q8,ema.avg=f32
cat > "$work/rows.lua" <<'END'
return optimizer { name = "rows", hyper = { lr = 0.1 }, state = { m = zeros, r = zeros "row" },
  step = function() m = lerp(m, g, 0.1)  r = rowsum(m * m)  p = p - lr * m end }
END
page short_code_pass "$work/rows.lua" --types state=q8
for rule in $("$OPTC" list --names); do
    explain "$rule" --bandwidth 100 --tera 1
    check "explain $rule: more than 60 lines, or a line of more than 100 columns" \
        '[ "$(wc -l < "$work/said")" -le 60 ] &&
        ! awk "{ gsub(/[\200-\277]/, \"\") } length > 100" "$work/said" | grep .'
done
explain() { "$OPTC" explain --full "$@" > "$work/said" 2>&1; }
check "with a bandwidth given something was measured" '[ ! -e "$OPTC_CACHE/bandwidth" ]'
# every rule and wrapper: no internal names of the compiler, no overlong lines
for rule in $("$OPTC" list --names); do
    explain "$rule" --bandwidth 100
    check "explain $rule: $(cat "$work/said")" '[ -s "$work/said" ] &&
        ! grep -nE "tmp[0-9]|part[0-9]|_over_|_times_|_squared" "$work/said"'
    check "explain $rule: a pass without a reason" \
        '[ "$(grep -cE "pass ([2-9]|[1-9][0-9]+) over the elements" "$work/said")" = \
           "$(grep -c "new pass, needed by" "$work/said")" ]'
    check "explain $rule: a long line" \
        '! awk "{ gsub(/[\200-\277]/, \"\") } length > 150" "$work/said" | grep .'
done
for wrapper in $("$OPTC" list --names --wrappers); do
    explain sgd --with "$wrapper" --bandwidth 100
    check "explain sgd --with $wrapper: $(cat "$work/said")" \
        'grep -q "passes\? over the elements\|pass over" "$work/said" &&
        ! grep -nE "tmp[0-9]|part[0-9]|_over_|_times_|_squared" "$work/said"'
done
# the reason names the value that forced the new pass, not one that could have been folded earlier
explain adafactor --bandwidth 1
check "the reason of adafactor's third pass" \
    'grep -A1 "new pass, needed by rate / max" "$work/said" |
        grep -q "^ *rms(u) is complete only after pass 2 has"'
# explaining a rule of 801 stages takes memory that does not grow quadratically
{ echo 'return optimizer { name = "chain", hyper = { lr = 1 }, step = function() local x = g'
  for k in $(seq 400); do echo "x = x + 0.5 * g * sum(x * $k)"; done
  echo 'p = p - lr * x end }'; } > "$work/chain.lua"
( ulimit -v 400000; explain "$work/chain.lua" --bandwidth 1 )
check "400 sums in a chain: $(tail -1 "$work/said")" \
    '[ "$(grep -c "new pass, needed by" "$work/said")" = 400 ]'
# control characters of a spec do not reach the terminal
printf 'return optimizer { name = "x", hyper = { lr = 1 },'\
' step = function() p = p - lr * g end } -- \033[31m\n' \
    > "$work/red.lua"
explain "$work/red.lua" --bandwidth 1
check "an escape sequence of the spec" 'grep -q "red.lua:1" "$work/said" &&
    ! grep -q "$(printf "\033")" "$work/said"'
"$OPTC" dump lamb > "$work/lamb.ir"
explain "$work/lamb.ir" --bandwidth 1
check "from IR text" 'grep -q "new pass, needed by lr \* ratio (lamb.lua:" "$work/said"'

# the bandwidth: measured once, stored, measured again on request; a damaged file is measured again
# (the name of the processor may take two lines)
rate() {
    awk '/^  least/ { on = 1 }
        on { sub(/^ +/, ""); line = line (line == "" ? "" : " ") $0 }
        on && /\)$/ { print line; exit }' "$work/said" |
            sed -n 's/.* at \([0-9.]*\) .*B.s (\(.*\))/\1 \2/p'
}
kept() { sed -n 2p "$OPTC_CACHE/bandwidth"; }
explain sgd --device cpu
check "nothing was kept: $(rate)" 'kept | grep -qE "^[0-9.e+]+ [0-9-]+ (steady|busy) .* \| cpu: "'
key=$(kept | cut -d" " -f4-)
printf 'optc-bandwidth 1\n1e+08 2020-02-02 steady other | cpu: x\n'\
'1.234e+12 2020-02-03 steady %s\n' "$key" \
    > "$OPTC_CACHE/bandwidth"
cp "$OPTC_CACHE/bandwidth" "$work/was"
explain sgd
check "what was kept is not used: $(rate)" \
    '[ "$(rate)" = "1.23 ${key#*| }, measured 2020-02-03; --measure repeats it" ] &&
    cmp -s "$work/was" "$OPTC_CACHE/bandwidth"'
explain sgd --measure
check "--measure: $(rate)" 'rate | grep -q "measured now.* and stored" &&
    ! grep -q 1.234e+12 "$OPTC_CACHE/bandwidth" &&
    grep -qx "1e+08 2020-02-02 steady other | cpu: x" "$OPTC_CACHE/bandwidth" &&
    [ "$(grep -c . "$OPTC_CACHE/bandwidth")" = 3 ]'
printf 'optc-bandwidth 1\n1.5e+13 2020-02-03 busy %s\n' "$key" > "$OPTC_CACHE/bandwidth"
explain sgd
check "measured on a busy machine, another day: $(rate)" 'rate | grep -q "^15.0 .*measured now" &&
    ! kept | grep -q 2020'
explain sgd
check "measured on a busy machine, the same day: $(rate)" \
    'rate | grep -q "measured 20.*--measure repeats it"'
for text in 'nonsense' \
    'optc-bandwidth 1\nfast 2020-02-03 steady K\n'\
'-1 2020-02-03 steady K\n1e99 2020-02-03 steady K\n1e10'; do
    printf "$(printf '%s' "$text" | sed "s#K#$key#")" > "$OPTC_CACHE/bandwidth"
    explain sgd
    check "a damaged file '$text': $(rate)" 'rate | grep -q "measured now.* and stored"'
done
OPTC_CACHE= explain sgd
check "no cache folder: $(rate)" 'rate | grep -q "measured now" && ! rate | grep -q kept'
explain sgd --device tpu
check "an unknown device: $(cat "$work/said")" 'grep -q "there is no device .tpu." "$work/said"'
explain sgd --bandwidth 3 --measure
check "two ways to say it: $(cat "$work/said")" \
    'grep -q "bandwidth and --measure exclude each other" "$work/said"'

# stagger: how many tensors a stage steps, and the cost of a step with and without the staggered
# block
cat > "$work/staggered.lua" <<'X'
return optimizer {
  name = "staggered", hyper = { lr = 0.1 }, state = { L = zeros "rows", X = zeros "rows" },
  step = function() p = p - lr * g end,
  matrix = function()
    L = L + gram(g)
    every(5, { stagger = true }, function() X = power(L, -1/4, { ridge = 0.001 }) end)
    p = p - lr * mm(X, g)
  end }
X
explain "$work/staggered.lua" --bandwidth 100
check "stagger: $(cat "$work/said")" \
    'grep -q "^ *[0-9]* *power of rows x rows, by eigenvectors, of one in 5 tensors a step" \
         "$work/said" &&
    grep -q "at its scheduled step: .* of products" "$work/said"'
explain "$work/staggered.lua" --bandwidth 100 --gpu
check "methods on a GPU: $(cat "$work/said")" \
    'grep -q "power of rows x rows, by products in f32 or products in f64, of one" "$work/said"'
explain "$work/staggered.lua" --bandwidth 100 --shape 64x64
check "stagger of a shape: $(cat "$work/said")" 'grep -q "^ *unscheduled .* bytes" "$work/said"'
# products and factors on the CPU with stored rates: 12 n^3 for a root and 3 n^3 for products, at 1
# GFLOP/s
cat > "$OPTC_CACHE/bandwidth" <<X
optc-bandwidth 1
1e+12 2020-02-03 steady $key
1e+09 2020-02-03 steady $key, products in f32
1e+09 2020-02-03 steady $key, Gram matrices in f32
1e+09 2020-02-03 steady $key, power of 256 rows
1e+09 2020-02-03 steady $key, power of 1024 rows
X
cp "$OPTC_CACHE/bandwidth" "$work/was"
explain "$work/staggered.lua" --device cpu --shape 256x256
check "operations of the CPU: $(cat "$work/said")" \
    'grep -q "^ *sum .* 252 MFLOP *252 ms" "$work/said" &&
    grep -q "^ *unscheduled .* 50.4 MFLOP *50.4 ms" "$work/said" &&
    grep -q "products at 1.00 GFLOP/s" "$work/said" &&
    grep -q "products and factors 252 ms: products and factors limit it" "$work/said" &&
    cmp -s "$work/was" "$OPTC_CACHE/bandwidth"'
explain "$work/staggered.lua" --device cpu --size 64K
check "operations of the CPU, of a size: $(cat "$work/said")" \
    'grep -q "252 MFLOP of products, at least 252 ms" "$work/said" &&
    grep -q "and products at 1.00 GFLOP/s" "$work/said"'
rm "$OPTC_CACHE/bandwidth"
explain "$work/staggered.lua" --device cpu --shape 64x64
check "rates of the CPU were not kept: $(cat "$OPTC_CACHE/bandwidth")" \
    'grep -q ", products in f32$" "$OPTC_CACHE/bandwidth" &&
    grep -q ", power of 256 rows$" "$OPTC_CACHE/bandwidth"'
if [ -n "${FAKES:-}" ]; then
    unset OPTC_NO_CUDA
    export LD_LIBRARY_PATH="$FAKES/versioned:$FAKES/nvrtc" FAKE_CUDA=works
    host=${key%% |*}
    cat > "$OPTC_CACHE/bandwidth" <<X
optc-bandwidth 1
4.25e+12 2020-02-04 steady $host | cuda:0: Fake GPU, 7 multiprocessors, sm_90
1e+10 2020-02-04 steady $key
X
    explain sgd
    check "the GPU's floor: $(rate)" \
        'rate | grep -q "^4.25 cuda:0: Fake GPU, .*measured 2020-02-04"'
    explain sgd --measure                        # the fake GPU's clock never advances
    check "a rate that cannot be: $(cat "$work/said")" \
        'grep -q "least .*(cuda:0: Fake GPU, .*bandwidth could not be measured)" "$work/said" &&
        ! grep -q "at least" "$work/said"'
    explain sgd --device cpu
    check "the CPU's floor where it is asked for: $(rate)" \
        'rate | grep -q "^10.0 cpu: .*measured 2020-02-04"'
fi
cd "$here"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
