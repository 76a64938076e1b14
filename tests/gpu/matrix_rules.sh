#!/bin/sh
# Measures rules of matrices on this GPU and compares each figure with its bar. It prints the
# command of each row before it runs, then the table. All rows take about seven minutes on an H200
# (an estimate).
#   sh tests/gpu/matrix_rules.sh [BUILD [ncu] [ROW…]]  an unknown ROW prints the names
#   after `make build/bench-release`
#   ncu                           also prints what limits each row: stages, time outside of stages
#                                 and, if ncu is installed, how busy the longest kernels keep tensor
#                                 cores and memory. It takes three times as long and more, so name
#                                 rows
#   OPTC_PYTHON                   a Python with a CUDA torch; rows that need one are left out
#                                 without it. For other packages' SOAP run `sh tests/bench/peers.sh`
#                                 first
#   MATRIX_RULES_ARGS='--size 60K --rounds 1' MATRIX_RULES_DEVICE=cpu small work, for testing this
#   script
# A row fails if it misses a bar, measures nothing, ends with an error, hangs, or if optc warns, for
# example of refused factors. Exits with 1 if a row fails or if no row ran. On a CPU there are no
# bars.
#
# ROW | seconds until it is ended | KIND ARGUMENTS…
#   KIND       bench: bench-release; bench-high: the same with torch's products in tf32; python:
#              tests/python/bench.py, which has the bars of its rows
# The bars of bench/bars.txt apply too. *-f32: products in f32, torch's in "highest" precision;
# *-tf32: both in tf32, where torch's "high" also uses it. The step is the mean of a period: 10
# steps of SOAP, 50 of Shampoo, 100 of PSGD and SPlus. A period is timed twice a round (steps; the
# host's part) and once before, so PSGD has one round. The first basis of SOAP beside torch is the
# identity, so that torch's first eigenvectors are not timed. SOAP's first step took 1.85 to 2.27 s
# with an empty cache and 0.94 to 1.0 s with a full one (bench/h200.txt). The rates of copies and of
# products tell a slow machine from slow code: products in f16 reach 635 to 786 TFLOP/s, which
# depends on the machine's limit of power.
rows='
muon|120|bench muon --work llama-1b --against torch --bar ms=45
soap|60|bench soap --work gpt2-124m --bar ms=60,cold_ms=4000
soap-stagger|60|bench soap --work gpt2-124m --options stagger=true --bar ms=60,slowest=1.3,host_us=1000
shampoo|60|bench shampoo --work gpt2-124m --bar ms=18,slowest=2,host_us=500,cold_ms=2500
psgd|90|bench psgd --work gpt2-124m --rounds 1 --bar ms=118
psgd-kron|60|bench psgd_kron --work gpt2-124m --bar ms=25
splus-stagger|120|bench splus --work gpt2-124m --options stagger=true --bar slowest=1.3
mousse|60|bench mousse --work gpt2-124m
roots|90|python roots
tensors5000|90|python tensors5000
shampoo-f32|120|bench shampoo --work gpt2-124m --products f32 --against torch --bar torch=3
shampoo-tf32|120|bench-high shampoo --work gpt2-124m --products tf32 --against torch --bar torch=3
soap-f32|150|bench soap --work gpt2-124m --products f32 --options start=identity --against torch --bar torch=2
soap-tf32|150|bench-high soap --work gpt2-124m --products tf32 --options start=identity --against torch --bar torch=2
'
build=${1:-build}
[ $# = 0 ] || shift
[ -x "$build/bench-release" ] || {
    echo "there is no $build/bench-release: run make build/bench-release, or name the build folder \
ahead of rows"
    exit 2
}
PATH=$PATH:/usr/local/cuda/bin         # ncu
ncu=
[ "${1:-}" != ncu ] || { ncu=yes; shift; }
device=${MATRIX_RULES_DEVICE:-cuda} python=${OPTC_PYTHON:-python3}
export OPTC_CACHE=${OPTC_CACHE:-$(realpath "$build")/cache} \
    OPTC_TUNE= PYTHONDONTWRITEBYTECODE=1
unset OPTC_CACHE_BASE OPTC_NO_GRAPHS OPTC_PEER_PRECISION OPTC_PROFILE OPTC_TUNE_LIVE
names=$(echo "$rows" | sed -n 's/|.*//p')
for name; do
    echo "$names" | grep -qxF -- "$name" || { echo "there is no row '$name'; rows:" $names; exit 2
        }
done
asked=${*:-$names} ran=0 left=0 failed=0 torch= machine=
"$python" -c "import sys, torch; sys.exit('$device' == 'cuda' and not torch.cuda.is_available())" \
    2>/dev/null &&
    torch=yes          # the first import may take half a minute; it is not part of a row

# kernels FILE: sums over launches of the same kernel, from the CSV of ncu
kernels() {
    awk '
        !/^"/ { next }
        { line = $0; sub(/^"/, "", line); sub(/"\r?$/, "", line); n = split(line, w, "\",\"") }
        w[1] == "ID" {
            for (i = 1; i <= n; i++) {
                if (w[i] == "Kernel Name") name = i
                if (w[i] ~ /^gpu__time_duration/) time = i
                if (w[i] ~ /pipe_tensor/) tensor = i
                if (w[i] ~ /^dram__throughput/) memory = i
            }
            next
        }
        time && w[1] ~ /^[0-9]+$/ {
            for (i = 1; i <= n; i++) if (i != name) gsub(",", "", w[i])
            k = substr(w[name], 1, 70); t = w[time]
            if (!(k in spent)) key[++kinds] = k
            spent[k] += t; all += t; count[k]++; launches++
            busy[k] += t * w[tensor]; moved[k] += t * w[memory]
            tensors += t * w[tensor]; memories += t * w[memory]
        }
        END {
            if (!all) { print "    ncu measured no kernel"; exit }
            printf "    ncu, the first %d launches of the timed steps: " \
                "tensor cores %.0f %%, memory %.0f %% busy\n",
                   launches, tensors / all, memories / all
            print  "        %  launches  tensor %  memory %  kernel"
            for (j = 0; j < 8 && j < kinds; j++) {
                best = 0
                for (i = 1; i <= kinds; i++)
                    if (!(i in done) && (!best || spent[key[i]] > spent[key[best]])) best = i
                done[best] = 1; k = key[best]
                printf "    %5.1f %9d %9.0f %9.0f  %s\n", 100 * spent[k] / all,
                    count[k], busy[k] / spent[k],
                       moved[k] / spent[k], k
            }
        }' "$1"
}
# kernels_of NAME ARGUMENTS…: profiles a row of bench-release with ncu
kernels_of() {
    csv=$build/log.matrix-$1.csv
    shift
    command -v ncu > /dev/null 2>&1 || { echo "    ncu is not installed: no kernels"; return; }
    tensor=$(ncu --query-metrics 2>/dev/null < /dev/null |
        grep -oE '^sm__(pipe_tensor_cycles_active|inst_executed_pipe_tensor) ' | sort -r | head -1)
    metrics=gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed
    for x in $tensor; do metrics=$metrics,$x.avg.pct_of_peak_sustained_elapsed; done
    OPTC_NO_GRAPHS=1 timeout -k 10 240 ncu --profile-from-start off --clock-control none \
        --cache-control none -c 2000 --csv --page raw --print-units base --metrics "$metrics" \
        "$build/bench-release" --device "$device" "$@" --rounds 1 > "$csv" 2>&1 < /dev/null ||
        { echo "    ncu: exit status $?"; grep '==ERROR==' "$csv" | sed 's/^/    /'; }
    kernels "$csv"
}

echo "every command: OPTC_CACHE=$OPTC_CACHE OPTC_TUNE="
[ -n "$torch" ] || echo "no torch with this device ($python): rows that need it are left out"
began=$(date +%s)
while IFS='|' read -r name limit row; do
    case " "$(echo $asked)" " in *" $name "*) ;; *) continue ;; esac
    kind=${row%% *} row=${row#* } log=$build/log.matrix-$name rc=0
    case $kind:$torch:$name in
    python::* | *::*-f32 | *::*-tf32) echo "$name: left out, no torch"
        left=$((left + 1)); continue ;;
    *::*) row=$(echo "$row" | sed 's/ --against torch//') ;;
    esac
    [ "$device" != cpu ] || row=$(echo "$row" | sed 's/ --bar [^ ]*//')
    ran=$((ran + 1))
    set -- "$build/bench-release" --device "$device" --rounds 3 $row $MATRIX_RULES_ARGS
    if [ -n "$ncu" ]; then limit=$((3 * limit)); set -- "$@" -o "$log.html"; fi
    case $kind in
    bench-high) set -- env OPTC_PEER_PRECISION=high "$@" ;;
    python)
        set -- env PYTHONPATH=runtime/python OPTC_LIBRARY="$build/liboptc.so" "$python" \
            tests/python/bench.py $row
        [ "$device" != cpu ] || set -- "$@" cpu ;;
    esac
    echo "$name, at $(($(date +%s) - began)) s: $*"
    timeout --foreground -k 10 "$limit" "$@" > "$log" 2> "$log.errors" < /dev/null || rc=$?
    case $kind in
    python)
        figure=' ms'
        cat "$log" ;;
    *)
        figure='^  copy'                   # below the table
        [ -n "$machine" ] || machine=$(sed -n '1,/parameters/p' "$log")
        sed -n '/^  work /,/^$/p; /% of it outside of stages$/,/^$/p; /^  products in /p;
            / ran$/,$p' "$log" ;;
    esac
    if [ $rc != 0 ] || grep -q '^optc: ' "$log.errors" || ! grep -q -- "$figure" "$log"; then
        failed=$((failed + 1)) why=
        case $rc in
        0) grep -q -- "$figure" "$log" || why=': it measured nothing' ;;
        124) why=": ended after $limit s" ;;
        137) why=": killed, perhaps after $limit s" ;;
        esac
        echo "  FAILED: $name, exit status $rc$why"
        tail -n 5 "$log.errors" | sed 's/^/    /'
    fi
    [ -z "$ncu" ] || [ "$device" = cpu ] || ! grep -q '^  work ' "$log" ||
        kernels_of "$name" $(echo "$row" | sed 's/ --against torch//; s/ --bar [^ ]*//') \
        $MATRIX_RULES_ARGS
done <<ROWS
$rows
ROWS
echo "$machine"
echo "$(date -u '+%Y-%m-%d %H:%M UTC'), $(($(date +%s) - began)) s"
echo "rows: $ran ran, $left left out, $failed failed"
[ "$ran" -gt 0 ] && [ "$failed" = 0 ]
