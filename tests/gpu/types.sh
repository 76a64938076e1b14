#!/bin/sh
# Measures rules with 16-bit storage types and block codes, and very many small tensors: their share
# of the copy bandwidth, with lower bounds. Takes about a minute.
#   sh tests/gpu/types.sh [BUILD]        after `make build/bench-release`
set -eu
bench=${1:-build}/bench-release
failed=0
# row LEAST LABEL OPTIONS…: one row of the bench.
row() {
    least=$1 label=$2
    shift 2
    line=$("$bench" --device cuda --rounds 7 "$@" | grep '%' | head -1)
    share=$(echo "$line" | sed 's/.* \([0-9.]*\)%.*/\1/')
    echo "$label $line  (at least $least%)"
    [ "$(echo "$share $least" | awk '{print ($1 >= $2)}')" = 1 ] || { failed=1
        echo "  misses its bar"; }
}
# ratio LABEL OPTIONS…: a step with other types over a step without them, in the same rounds.
ratio() {
    label=$1
    shift
    "$bench" --device cuda --rounds 15 "$@" | grep 'x *$' | head -1 |
        sed "s/.* \([0-9.]*\)x *$/$label \1/" |
        grep . || { failed=1; echo "$label: not measured"; }
}
for rule in adamw lion; do
    for work in 2^28 gpt2-1.5b; do
        for types in "bf16 bf16" "bf16 f32" "f16 f16" "f16 f32"; do
            least=97
            [ "$types" != "f16 f16" ] || least=95
            row $least "$(echo "$types" | tr ' ' /)" "$rule" --work $work --type "${types% *}" \
                --state-type "${types#* }"
        done
    done
done
row 92 "f32, q8 states" adamw --work gpt2-1.5b --types param=f32,state=q8
row 78 "bf16, q8 states" adamw --work gpt2-1.5b --types param=bf16,grad=bf16,state=q8
row 72 "bf16sr, q8 states" adamw --work gpt2-1.5b --types param=bf16sr,grad=bf16,state=q8
row 40 "100000 of 100 " adamw --tensors 100000 --size 10000000
row 80 "20000 of 1000 " adamw --tensors 20000 --size 20000000
row 15 "100000 of 100 " 'adamw+clip(1)' --tensors 100000 --size 10000000
for rule in adamw 'adamw+clip(1)'; do
    ratio "$rule, gpt2-124m in bf16: norms and biases in f32, of one set" "$rule" --work gpt2-124m \
        --types param=bf16 --against mixed
done
ratio "adamw, gpt2-124m in bf16: lost=count, of without" adamw --work gpt2-124m --types param=bf16 \
    --against types --other-types param=bf16,lost=count
exit $failed
