# Proves every rule of the library by optc verify, and prints totals. Arguments: its options.
#   BUILD  the build folder
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. tests/parts/nvrtc.sh
[ -n "$have_nvrtc" ] || { echo "there is no NVRTC"; exit 1; }
for spec in specs/*.lua; do
    rule=$(basename "$spec" .lua)
    status=0
    "$BUILD/optc" verify -q "$rule" "$@" > "$work/out" 2>&1 || status=$?
    [ $status -le 1 ] || echo "$rule: ended with status $status" | tee -a "$work/broken"
    grep -v '^[0-9]* stages proved' "$work/out"
    sed -n "s/^\([0-9]* stages proved.*\)/$rule: \1/p" "$work/out" | tee -a "$work/all"
done
awk '{ proved += $2; differ += $7; not += $9 }
    END { printf "%d rules: %d stages proved, %d differ, %d not checked\n", NR, proved, differ, not
          exit differ > 0 }' "$work/all" && [ ! -e "$work/broken" ]
