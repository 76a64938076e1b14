#!/bin/sh
# Compares the launches that the model chooses with the best that `optc tune --log` tried on a GPU.
# Needs no GPU, so that changes of the model can be judged anywhere. "Best" is the second best time
# per stage and size, since the very best of many is luck.
#   sh tests/gpu/model.sh BUILD FILE…
set -eu
build=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat "$@" | sed -n '/^device.* threads=.*#/p' > "$work/trials"
kind='\([a-z0-9]*\)'
sed "s/.* $kind,$kind,$kind [0-9a-f]* 2^\([0-9]*\) threads.*# \([^ ]*\) .*/\4 \5 \1 \2 \3/" \
    "$work/trials" | sort -u > "$work/asked"
while read -r bits rule param grad state; do
    with=${rule#"${rule%%+*}"}
    "$build/optc" explain "${rule%%+*}" ${with:+--with "${with#+}"} --type "$param" \
        --grad-type "$grad" --state-type "$state" --hashes --size "$(awk \
        "BEGIN {printf \"%d\", 2^$bits}")" |
        sed "s/^/2^$bits $param,$grad,$state /"
done < "$work/asked" | sort -u > "$work/model"
awk -v model="$work/model" '
    BEGIN {
        while ((getline line < model) > 0) {
            split(line, w, " ")
            launch = ""
            for (i = 6; i <= 12; i++) launch = launch " " w[i]
            of[w[2] " " w[3] " " w[1]] = launch
        }
    }
    {
        device = $0
        sub(/ \| [a-z]* [a-z0-9]*,[^|]*$/, "", device)
        sub(/^.*\| /, "")
        stage = $2 " " $3 " " $4
        if (!(stage in of)) { unknown++; next }      # trials of kernels that no longer exist
        key = device " " stage
        launch = ""
        for (i = 5; i <= 11; i++) launch = launch " " $i
        ms = substr($12, 4) + 0
        if (ms <= 0) next
        label = $0
        sub(/.*# /, "", label)
        name[key] = $2 == "f32,f32,f32" ? label : label " " $2
        size[key] = $4
        if (launch == of[stage]) got[key] = ms
        if (!(key in best) || ms < best[key]) { second[key] = best[key]; best[key] = ms }
        else if (!second[key] || ms < second[key]) second[key] = ms
        n[key]++
    }
    END {
        for (k in best) {
            b = second[k] ? second[k] : best[k]
            if (k in got) printf "%6.1f %%  %-5s %-38s of %d\n",
                100 * (got[k] / b - 1), size[k], name[k], n[k]
            else printf "%8s  %-5s %-38s of %d\n", "untried", size[k], name[k], n[k]
        }
        if (unknown) printf "%d trials of other kernels were left out\n", unknown
    }' "$work/trials" | sort -k1,1rn
