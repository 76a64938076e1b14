#!/bin/sh
# Compares two schedules of `optc dump --pass schedule`: ops that were removed (-), added (+) or
# only moved (>).
#   sh tests/parts/schedule_diff.sh OLD NEW       exit status 1: they differ
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# without the numbers of ops, and with the phase ahead of each
plain() {
    sed 's/^ *[0-9][0-9]* /  /' "$1" |
        awk '/^[^ ]/ { sub(/: [0-9]+ ops$/, ""); phase = $0 } { print phase ": " $0 }'
}
plain "$1" > "$work/old"
plain "$2" > "$work/new"
diff "$work/old" "$work/new" | sed -n 's/^\([<>]\) /\1 /p' > "$work/lines" || true
awk '{ side = substr($0, 1, 1); op = substr($0, 3) }
     side == "<" { old[op]++ } side == ">" { new[op]++ } { order[NR] = op }
     END { for (i = 1; i <= NR; i++) {
               op = order[i]
               if (old[op] && new[op]) { print "> " op; old[op]--; new[op]-- }
               else if (old[op]) { print "- " op; old[op]-- }
               else if (new[op]) { print "+ " op; new[op]-- } } }' "$work/lines"
cmp -s "$work/old" "$work/new"
