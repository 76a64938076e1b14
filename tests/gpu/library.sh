#!/bin/sh
# Tunes the rules of the library on this GPU, then compares whole steps with and without the
# results, alternating in one process. Takes about four minutes.
#   sh tests/gpu/library.sh [BUILD [SECONDS]] after `make`; SECONDS: per stage of a rule (default 4)
# The file `library` in $OUT (default: a new folder) is the input of runtime/tuned/ after a change
# of the kernels; `library.tried` has every launch that was tried.
set -eu
build=${1:-build}
optc=$build/optc
work=${OUT:-$(mktemp -d)}
export OPTC_TUNE= OPTC_TUNE_BUILTIN=
# Rules with factors are left out: they spend their time in calls, which have no launch shape, and
# the first steps of some are long.
rules= left=
for rule in $("$optc" list --names | grep -v /); do
    if "$optc" explain --full "$rule" --gpu |
        grep -qE '^ +[0-9]+  (power|eigh|qr|chol|solve)\b'; then left="$left $rule"
        else rules="$rules $rule"; fi
done
echo "left out:$left"
for rule in $rules; do
    stages=$("$optc" explain "$rule" --hashes | grep -cE ' (map|fold|tile|rows) ')
    "$optc" tune "$rule" --budget "$(awk "BEGIN {print $stages * ${2:-4}}")s" \
        --into "$work/library" --log "$work/library.tried"
done
echo "== the model over the best that was tried, the worst first"
sh tests/gpu/model.sh "$build" "$work/library.tried" | head -20
echo "== whole steps without results over steps with them"
for work_or_size in "--size 1M" "--size 16M" "--work gpt2-124m"; do
    OPTC_TUNE="$work/library" "$optc" bench --device cuda $work_or_size --rounds 7 --against \
        untuned $rules |
        awk '/speedup/, /^$/ {print} /[0-9]x/ {n++} END {exit !n}'
done
echo "kept in $work"
