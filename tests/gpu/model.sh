#!/bin/sh
# How the model's launches stand to the best that was tried, from what `optc tune` wrote down on a GPU: no GPU needed, so a change to the model can be judged anywhere.
#   sh tests/gpu/model.sh BUILD FILE.trials…        the best: the second best time of a stage and size, since the very best of many is luck
set -eu
build=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -n 's/.* 2^\([0-9]*\) threads.*# \([^ ]*\) .*/\2 \1/p' "$@" | sort -u > "$work/asked"
while read -r rule bits; do
    "$build/optc" explain "$rule" --hashes --size "$(awk "BEGIN {printf \"%d\", 2^$bits}")" | sed "s/^/2^$bits /"
done < "$work/asked" | sort -u > "$work/model"
cat "$@" | awk -v model="$work/model" '
    BEGIN {
        while ((getline line < model) > 0) {
            split(line, w, " ")
            launch = ""
            for (i = 5; i <= 11; i++) launch = launch " " w[i]
            of[w[2] " " w[1]] = launch
        }
    }
    /^device/ {
        sub(/^.*\| /, "")
        key = $3 " " $4
        launch = ""
        for (i = 5; i <= 11; i++) launch = launch " " $i
        ms = substr($12, 4)
        if (ms + 0 <= 0 || !(key in of)) next
        label = $0
        sub(/.*# /, "", label)
        name[key] = label
        if (launch == of[key]) got[key] = ms
        if (!(key in best) || ms < best[key]) { second[key] = best[key]; best[key] = ms } else if (!second[key] || ms < second[key]) second[key] = ms
        n[key]++
    }
    END {
        for (k in best) {
            split(k, w, " ")
            b = second[k] ? second[k] : best[k]
            if (k in got) printf "%-32s %-5s %6.1f %%  of %d\n", name[k], w[2], 100 * (got[k] / b - 1), n[k]
            else printf "%-32s %-5s not tried, of %d\n", name[k], w[2], n[k]
        }
    }' | sort -k2,2 -k1,1 | sort -s -k3,3
