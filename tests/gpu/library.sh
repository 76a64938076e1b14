#!/bin/sh
# The rules of the library tuned on the GPU at hand, and whole steps with the results against steps without any, in turn
# in one process.
#   sh tests/gpu/library.sh [BUILD [SECONDS]]        after `make`; SECONDS for each stage of a rule at its three sizes,
#       4 unless told: about four minutes
# What it leaves in $OUT (or a folder of its own) is what runtime/tuned/ wants after a change to the kernels: library,
# library.trials.
set -eu
build=${1:-build}
optc=$build/optc
work=${OUT:-$(mktemp -d)}
export OPTC_TUNE_SITE= OPTC_TUNE= OPTC_TUNE_BUILTIN=
# Rules with roots, bases and triangles spend their time in those, which no launch shape changes, and the first steps of
# some are long: they are left out.
rules= left=
for rule in $("$optc" list --names | grep -v /); do
    if "$optc" explain --full "$rule" --gpu |
        grep -qE '^ +[0-9]+  (power|eigh|qr|chol|solve)\b'; then left="$left $rule"; else rules="$rules $rule"; fi
done
echo "left out:$left"
for rule in $rules; do
    stages=$("$optc" explain "$rule" --hashes | grep -cE ' (map|fold|tile|rows) ')
    "$optc" tune "$rule" --budget "$(awk "BEGIN {print $stages * ${2:-4}}")s" --into "$work/library"
done
echo "== the model over the best that was tried, the worst first"
sh tests/gpu/model.sh "$build" "$work/library.trials" | head -20
echo "== whole steps without results over steps with them"
for work_or_size in "--size 1M" "--size 16M" "--work gpt2-124m"; do
    OPTC_TUNE="$work/library" "$optc" bench --device cuda $work_or_size --rounds 7 --against untuned $rules |
        sed -n '/ahead/,/^$/p'
done
echo "kept in $work"
