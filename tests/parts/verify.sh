# optc verify: six rules are proved, changed PTX is refused, and what cannot run says why.
#   BUILD       the build folder
#   have_nvrtc  as tests/parts/nvrtc.sh sets it
set -eu
optc="$BUILD/optc"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fails() {
    want=$1
    shift
    code=0
    "$@" > "$work/out" 2>&1 || code=$?
    [ "$code" = "$want" ] && return
    echo "exit code $code instead of $want: $*"
    cat "$work/out"
    exit 1
}
fails 1 env OPTC_NO_NVRTC=1 "$optc" verify sgd
grep -q 'NVRTC was not found' "$work/out"
fails 2 "$optc" verify

if [ -z "$have_nvrtc" ]; then
    echo "skipped: proofs of emitted code (no NVRTC)"
    [ -z "${CI:-}" ]
    exit
fi
fails 2 "$optc" verify sgd --arch sm_1

# prove ARGUMENTS…: every stage is checked, and none differs
prove() {
    "$optc" verify -q "$@" > "$work/proved" || { cat "$work/proved"; exit 1; }
    grep ' proved .* 0 differ, 0 not checked$' "$work/proved" || { cat "$work/proved"; exit 1; }
}
# maps, choices by floats, folds of segments, global reductions
prove sgd adamw lion rprop lamb
prove adafactor --stage _tile_                  # rows, columns and tiles
prove adafactor --stage _col_
prove adamw --type bf16 --stage map
[ -z "${OPTC_ALL:-}" ] || prove adafactor adam radam adan sophia rmsprop adagrad adamax yogi

# Most changes are refused; the others are equal for every value (tests/PROOF.md). A check that
# compares nothing would refuse none.
"$optc" verify sgd --stage map --mutants "${OPTC_ALL:+20}8" > "$work/mutants"
awk '/ mutants: / { print; good = $3 * 10 >= $1 * 7 && $1 >= 8 } END { exit !good }' \
    "$work/mutants" || { cat "$work/mutants"; exit 1; }
