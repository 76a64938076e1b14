#!/bin/sh
# Measures rules of matrices on this GPU and compares each figure with its bar. Prints a row when it ends, with the
# command that measured it. All rows take about seven minutes on an H200, by estimate.
#   sh tests/gpu/matrix_rules.sh [BUILD [ncu] [ROW…]]        after `make`; an unknown ROW prints the names
#   ncu                           also prints what limits each row: stages, gaps between launches and, if ncu is
#                                 installed, the tensor cores and the memory of the longest kernels
#   OPTC_PYTHON                   a Python with a CUDA torch; rows that need one are left out without it. For other
#                                 packages' SOAP run `sh tests/bench/peers.sh` first
#   MATRIX_RULES_ARGS='--size 60K --rounds 1' MATRIX_RULES_DEVICE=cpu        small work, for testing this script
# Exits with 1 if a bar is missed or a row fails.
#
# ROW | seconds until it is ended | FIGURE=BAR… | KIND ARGUMENTS…
#   KIND       bench: optc bench with 3 rounds; bench-high: the same with torch's products in tf32;
#              python: tests/python/bench.py
#   ms         mean of a period's steps         slowest   slowest step over the mean
#   host_us    host time of the call optc_step  torch     torch's time over ours, the best of its implementations
#   cold_ms    from optc_compile to the end of the first step, with an empty cache; warm_ms: with a full one
# A bar of torch is the least value, all others are the largest. Bars of bench/bars.txt apply too; they are not repeated
# here. *-f32: products in f32, torch's in "highest" precision; *-tf32: both in tf32, where torch's "high" also uses it.
# The first basis of SOAP beside torch is the identity, so that torch's first eigenvectors are not timed.
# SOAP's first step: 2 s of code and 2 s of eigenvectors, which warm_ms contains without the code.
rows='
muon|120|ms=45|bench muon --work llama-1b --against torch
soap|60|ms=60 cold_ms=4000|bench soap --work gpt2-124m
soap-stagger|60|ms=60 slowest=1.3 host_us=1000|bench soap --work gpt2-124m --options stagger=true
shampoo|60|ms=18 slowest=2 host_us=500 cold_ms=2500|bench shampoo --work gpt2-124m
psgd|60|ms=118|bench psgd --work gpt2-124m
psgd-kron|60|ms=25|bench psgd_kron --work gpt2-124m
splus-stagger|120|slowest=1.3|bench splus --work gpt2-124m --options stagger=true
mousse|60||bench mousse --work gpt2-124m
roots|60|root_4096_ms=44 root_8x1024_ms=6.7|python roots
tensors5000|60|queued_ms=0.65 synchronised_ms=0.75|python tensors5000
shampoo-f32|120|torch=3|bench shampoo --work gpt2-124m --products f32 --against torch
shampoo-tf32|120|torch=3|bench-high shampoo --work gpt2-124m --products tf32 --against torch
soap-f32|150|torch=2|bench soap --work gpt2-124m --products f32 --options start=identity --against torch
soap-tf32|150|torch=2|bench-high soap --work gpt2-124m --products tf32 --options start=identity --against torch
'
build=${1:-build}
[ $# = 0 ] || shift
ncu=
[ "${1:-}" != ncu ] || { ncu=yes; shift; }
device=${MATRIX_RULES_DEVICE:-cuda} python=${OPTC_PYTHON:-python3}
export OPTC_CACHE=${OPTC_CACHE:-$(realpath "$build")/cache} OPTC_TUNE= OPTC_TUNE_SITE= PYTHONDONTWRITEBYTECODE=1
names=$(echo "$rows" | sed -n 's/|.*//p')
for name; do
    echo "$names" | grep -qx -- "$name" || { echo "there is no row '$name'; rows:" $names; exit 2; }
done
asked=${*:-$names} failed=0 torch= measured_on=
"$python" -c "import sys, torch; sys.exit('$device' == 'cuda' and not torch.cuda.is_available())" 2>/dev/null &&
    torch=yes

# read_json FILE: lines FIGURE VALUE, `bar FIGURE VALUE` and `peer TEXT` from the output of optc bench --json
read_json() {
    awk '
        function value(key) { return match($0, "\"" key "\": [0-9.e+-]+") ? substr($0, RSTART + length(key) + 4,
                              RLENGTH - length(key) - 4) : "" }
        function put(name, key, x) { x = value(key); if (x != "") print name, x }
        function bar(name, key, x) { x = value(key); if (x > 0) print "bar", name, x }
        /^ *"ms": / { put("ms", "ms") }
        /^ *"period": / { put("slowest", "slowest_over_mean") }
        /"first_ms_cold": / && !/"bar": / {
            put("host_us", "host_us"); put("cold_ms", "first_ms_cold"); put("warm_ms", "first_ms_warm")
        }
        /^ *"torch": / {
            put("torch", "ratio"); put("torch_ms", "ms")
            sub(/^.*"runs": "/, ""); sub(/", "ms".*/, ""); print "peer", $0
        }
        /^ *"bar": / {
            bar("slowest", "slowest_over_mean"); bar("host_us", "host_us"); bar("cold_ms", "first_ms_cold")
            bar("warm_ms", "first_ms_warm"); bar("torch", "ratio")
        }' "$1"
}
# judge NAME BARS: prints the lines of the table for the figures of standard input
judge() {
    awk -v row="$1" -v bars="$2" -v gpu="$([ "$device" = cpu ] || echo 1)" -v torch="$torch" '
        function print_row(name, measured, limit, verdict) {
            line = sprintf("%-14s %-16s %10s %8s  %s", row, name, measured, limit, verdict)
            sub(/ +$/, "", line); print line
            row = ""
        }
        BEGIN { n = split(bars, w, " "); for (i = 1; i <= n; i++) { split(w[i], x, "="); bar[x[1]] = x[2] } }
        $1 == "bar" { if (!($2 in bar)) bar[$2] = $3; next }
        $1 == "peer" { sub(/^peer /, ""); peer = $0; next }
        { figure[$1] = $2; order[++m] = $1 }
        END {
            for (i = 1; i <= m; i++) {
                f = order[i]
                text = sprintf(figure[f] >= 1000 ? "%.0f" : "%.4g", figure[f])
                miss = f in bar && (f == "torch" ? text + 0 < bar[f] + 0 : text + 0 > bar[f] + 0)
                print_row(f, text, bar[f], !(f in bar) || bar[f] == "" ? "" : miss ? "misses" : "reached")
            }
            for (f in bar)
                if (!(f in figure) && bar[f] != "")
                    print_row(f, "-", bar[f], gpu && (f != "torch" || torch) ? "FAILED: not measured" : "not measured")
            if (peer != "") print "    torch: " peer
        }'
}
# stages FILE: what the profile of optc bench -o shows
stages() {
    awk '
        function value(key) { match($0, "\"" key "\": [0-9.e+-]+")
                              return substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4) + 0 }
        /"copy_gb_per_s": / && /"best_gb_per_s": / { copy = value("best_gb_per_s") }
        /"product_gflop_per_s": / { roofs = $0; sub(/^.*\{/, "", roofs); sub(/\}.*/, "", roofs); gsub(/"/, "", roofs) }
        /^ *"ms": / { step = value("ms") }
        /"profiled_ms": / { all = value("profiled_ms") * 1e3 }
        /^ *\{"name": .*"launches": / {
            us = value("us"); sum += us; name = $0; sub(/^ *\{"name": "/, "", name); sub(/", "us".*/, "", name)
            line[++n] = sprintf("    %5.1f %10.1f %8.1f %8.0f %8.2f  %s", all ? 100 * us / all : 0, us,
                                value("launches"), us ? value("bytes") / us * 1e-3 : 0,
                                us ? value("flops") / us * 1e-6 : 0, name)
            time[n] = us
        }
        END {
            if (!all) { print "    no profile of its stages"; exit }
            printf "    roofs: copying %.0f GB/s; products, GFLOP/s: %s\n", copy, roofs
            printf "    gaps between launches: %.1f %% of a step of %.3f ms without a graph; with one a step takes " \
                   "%.3f ms\n", (all > sum ? 100 * (all - sum) / all : 0), all * 1e-3, step
            print  "    stages with the largest share:\n        %         us launches     GB/s  TFLOP/s"
            for (k = 0; k < 8 && k < n; k++) {
                best = 0
                for (i = 1; i <= n; i++) if (!(i in done) && (!best || time[i] > time[best])) best = i
                done[best] = 1
                print line[best]
            }
        }' "$1"
}
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
            busy[k] += t * w[tensor]; moved[k] += t * w[memory]; tensors += t * w[tensor]; memories += t * w[memory]
        }
        END {
            if (!all) { print "    ncu measured no kernel"; exit }
            printf "    ncu, the first %d launches of the timed steps: tensor cores %.0f %%, memory %.0f %% busy\n",
                   launches, tensors / all, memories / all
            print  "        %  launches  tensor %  memory %  kernel"
            for (j = 0; j < 8 && j < kinds; j++) {
                best = 0
                for (i = 1; i <= kinds; i++)
                    if (!(i in done) && (!best || spent[key[i]] > spent[key[best]])) best = i
                done[best] = 1; k = key[best]
                printf "    %5.1f %9d %9.0f %9.0f  %s\n", 100 * spent[k] / all, count[k], busy[k] / spent[k],
                       moved[k] / spent[k], k
            }
        }' "$1"
}
# limits NAME COMMAND…: what limits a row of optc bench
limits() {
    log=$build/log.matrix-$1-limits
    shift
    timeout 120 "$@" --rounds 1 -o "$log.html" > "$log" 2>&1 < /dev/null || sed 's/^/    /' "$log" | tail -3
    stages "$log"
    [ "$device" != cpu ] || return 0
    command -v ncu > /dev/null 2>&1 || { echo "    ncu is not installed: no kernels"; return; }
    tensor=$(ncu --query-metrics 2>/dev/null | grep -oE '^sm__(pipe_tensor_cycles_active|inst_executed_pipe_tensor) ' |
        sort -r | head -1)
    metrics=gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed
    for x in $tensor; do metrics=$metrics,$x.avg.pct_of_peak_sustained_elapsed; done
    OPTC_NO_GRAPHS=1 timeout 240 ncu --profile-from-start off --clock-control none --cache-control none -c 2000 --csv \
        --page raw --print-units base --metrics "$metrics" "$@" --rounds 1 > "$log.csv" 2>&1 < /dev/null ||
        grep '==ERROR==' "$log.csv" | sed 's/^/    /'
    kernels "$log.csv"
}

echo "every command: OPTC_CACHE=$OPTC_CACHE OPTC_TUNE= OPTC_TUNE_SITE="
[ -n "$torch" ] || echo "no torch with this device ($python): rows that need it are left out"
printf '%-14s %-16s %10s %8s\n' row figure measured bar
while IFS='|' read -r name limit bars command; do
    case " "$(echo $asked)" " in *" $name "*) ;; *) continue ;; esac
    set -- $command
    kind=$1
    shift
    case $kind:$torch:$name in
    python::* | *::*-f32 | *::*-tf32) echo "$name: left out, no torch"; continue ;;
    *::*) set -- $(echo "$*" | sed 's/ --against torch//') ;;
    esac
    case $kind in
    bench*) set -- "$build/optc" bench --device "$device" --rounds 3 --json "$@" $MATRIX_RULES_ARGS ;;
    esac
    case $kind in
    bench-high) set -- env OPTC_PEER_PRECISION=high "$@" ;;
    python)
        [ "$device" != cpu ] || set -- cpu "$@"
        set -- env PYTHONPATH=runtime/python OPTC_LIBRARY="$build/liboptc.so" "$python" tests/python/bench.py "$@" ;;
    esac
    log=$build/log.matrix-$name rc=0
    timeout "$limit" "$@" > "$log" 2> "$log.errors" < /dev/null || rc=$?
    if [ $rc != 0 ] || grep -q '"failed": true' "$log"; then
        failed=$((failed + 1))
        echo "$name: FAILED with $rc$([ $rc != 124 ] || echo ": ended after $limit s")"
        tail -n 3 "$log.errors" | sed 's/^/    /'
    else
        case $kind in python) cat "$log" ;; *) read_json "$log" ;; esac > "$log.figures"
        judge "$name" "$bars" < "$log.figures" > "$log.table"
        cat "$log.table"
        [ "$kind" = python ] ||
            measured_on=$(sed -n 's/", "device_state": "/, /; s/^ *"device": "\(.*\)",$/\1/p' "$log")
        ! grep -qE ' (misses|FAILED: not measured)$' "$log.table" || failed=$((failed + 1))
        sed 's/^/    /' "$log.errors" | head -n 5
    fi
    echo "    $*"
    case $ncu:$rc:$kind in
    yes:0:python) echo "    no stages: not a row of optc bench" ;;
    yes:0:*) limits "$name" $(echo "$*" | sed 's/ --against torch//; s/ --rounds [0-9]*//g') ;;
    esac
done <<ROWS
$rows
ROWS
echo "${measured_on:+$measured_on, }$(date -u '+%Y-%m-%d %H:%M UTC')"
echo "$failed rows failed or miss a bar"
[ "$failed" = 0 ]
