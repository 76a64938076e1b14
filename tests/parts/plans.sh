# Compares plans with those of another optc: for each rule, with and without wrappers, as many
# passes and no more bytes per element. Not part of `make test`.
#   sh tests/parts/plans.sh OTHER/optc [SPEC…]
# Random specs for this: OPTC_FUZZ_WRITE=FOLDER CK_RUN_SUITE=fuzz build/run-tests writes
# OPTC_FUZZ_SPECS of them.
set -u
other=$1
shift
mine=${OPTC:-build/optc}
[ $# -gt 0 ] || set -- specs/*.lua
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
plans=0
worse=0
heads() { "$1" dump "$2" --pass plan --with "$3" 2>&1 | grep -E 'bytes per element|: '; }
for spec; do
    for with in '' 'clip(1)' 'cautious' 'centralize' 'sam(0.05)' 'clip(1),cautious,ema(0.999)' \
        'lookahead(5,0.5),centralize' \
        'clip_norm(1),clip_value(2),ema,ema(0.9),lookahead(3)'; do
        heads "$other" "$spec" "$with" | grep 'bytes per element' > "$tmp/was"
        heads "$mine" "$spec" "$with" | grep 'bytes per element' > "$tmp/is"
        plans=$((plans + 1))
        # one line per entry: stages, passes, then the bytes of each variant
        if ! paste -d '\n' "$tmp/was" "$tmp/is" | awk '
            {
                name = $0
                sub(/: [0-9]+ stage.*/, "", name)
                sub(/.*: /, "", $0)
                gsub(/[^0-9]+/, " ")
                k = split($0, x, " ")
            }
            NR % 2 { for (i in x) was[i] = x[i]; waskey = name; wask = k; next }
            name != waskey || k != wask { bad = 1 }
            { for (i = 2; i <= k; i++) if (x[i] + 0 > was[i] + 0) bad = 1 }
            END { exit bad || NR % 2 }'; then
            echo "$spec with '$with':"
            diff "$tmp/was" "$tmp/is"
            worse=$((worse + 1))
        fi
    done
done
echo "$plans plans, $worse worse"
[ $worse -eq 0 ]
