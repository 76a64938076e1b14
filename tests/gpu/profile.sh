#!/bin/sh
# Prints what limits the kernels of rules: time, registers, occupancy, share of the memory
# bandwidth. Needs ncu.
#   sh tests/gpu/profile.sh build/optc nadam adafactor
set -eu
optc=$1
shift
PATH=$PATH:/usr/local/cuda/bin
command -v ncu > /dev/null || { echo "ncu is not installed"; exit 1; }
metrics=gpu__time_duration.sum,launch__registers_per_thread
metrics=$metrics,sm__warps_active.avg.pct_of_peak_sustained_active
metrics=$metrics,dram__throughput.avg.pct_of_peak_sustained_elapsed
for rule in "$@"; do
    echo "== $rule"
    ncu --clock-control none --metrics "$metrics" \
        -k regex:step_ -c 16 "$optc" bench --device cuda --work gpt2-1.5b --rounds 1 "$rule" 2>&1 |
        awk '/step_[0-9]/ {name = $1} /gpu__time/ {t = $NF;
        u = $2} /registers/ {r = $NF} /warps_active/ {w = $NF}
             /dram__/ {d = $NF} /==ERROR==/
             /warps_active/ {n++
                 printf "%-28s %8s %s  %3s registers  %5s %% warps  %5s %% dram\n",
                     name, t, u, r, w, d}
             END {exit !n}'
done
