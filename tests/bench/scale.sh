#!/bin/sh
# Predicts the time of a sharded step for 8 to 1024 GPUs, and names the part that takes the most of
# it. Nothing is measured here: kernel times of one GPU are given, message sizes are counted by
# `optc explain --ranks`, and link rates are stated below.
#   sh tests/bench/scale.sh [RULE [WORK [MS_ELEMENTS [MS_PRODUCTS]]]]
#   MS_ELEMENTS   time of the passes over all elements on one GPU, in ms
#   MS_PRODUCTS   time of the products and factors of all tensors on one GPU, in ms
#   OPTC          the program (default: build/optc)
# The defaults are Muon on Llama 1B, measured on an H200 (tests/bench/h200.txt): 49.9 ms, of which
# the passes take the time of copying 16 bytes per element at 4.24 TB/s.
set -eu
rule=${1:-muon} work=${2:-llama-1b} elements=${3:-3.7} products=${4:-46.2}
optc=${OPTC:-build/optc}
# NVLink inside a node of 8 GPUs, one 400 Gb/s port per GPU between nodes; both in GB/s that
# collectives reach. The latency of a collective, in us: per call, and per doubling of the number of
# nodes.
nvlink=360 network=42 call=20 doubling=5
echo "$rule on $work: $elements ms of passes and $products ms of products on one GPU"
echo "links: $nvlink GB/s in a node of 8, $network GB/s between; $call us per collective + \
$doubling us per doubling"
printf '%6s %10s %10s %10s %10s %10s  %s\n' GPUs passes products links hidden total 'most of it'
for ranks in 8 16 32 64 128 256 512 1024; do
    "$optc" explain "$rule" --ranks $ranks --work "$work" |
        awk -v n=$ranks -v e="$elements" -v p="$products" \
        -v nvlink=$nvlink -v network=$network -v call=$call -v doubling=$doubling '
        function bytes(x, unit) {
            return x * (unit == "GB" ? 1e9 : unit == "MB" ? 1e6 : unit == "kB" ? 1e3 : 1) }
        / collectives / { calls = $2 }
        / sent  / { sent = bytes($4, $5) }
        / overlap  *on a GPU / { beside = bytes($5, $6) }
        / balance / { slowest = $6 }
        END {
            passes = e / n
            products = p / n * (slowest ? slowest : 0)
            away = n > 8 ? (n - 8) / (n - 1) : 0      # the share of the bytes that leaves the node
            links = sent * (1 - away) / nvlink / 1e6 + sent * away / network / 1e6
            nodes = n / 8; steps = 0
            while (nodes > 1) { nodes /= 2; steps++ }
            links += calls * (call + doubling * steps) / 1e3
            both = sent ? links * beside / sent : 0   # the longer of exchanges and products
            hidden = both < products ? both : products
            most = passes > products ? (passes > links ? "passes" : "links") : \
                products > links ? "products" : "links"
            printf "%6d %7.2f ms %7.2f ms %7.2f ms", n, passes, products, links
            printf " %7.2f ms %7.2f ms  %s\n", hidden, passes + products + links - hidden, most
        }'
done
echo "hidden: exchanges beside products. One GPU computes the largest matrix, which limits \
products."
