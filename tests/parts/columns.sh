#!/bin/sh
# No line of a source or of a page has more than 100 columns (characters, not bytes).
# `columns.sh count` prints how many each folder has. Exceptions:
#   tests/specs     golden files, which the compiler prints; bad specs, whose lines are what is
#                   tested
#   *.def, tables   a row is one line: matrix_rules.sh and mutations.sh have tables, and pages
#   pages           code and what commands print; CATALOGUE.md, which is generated
#   Makefile, templates/package_*.txt, tests/cuda/headers.cc
#                   recipes and long words of make, cmake and #error
set -eu
export LC_ALL=C
sources() {
    git ls-files 2> /dev/null | grep -E '\.([ch]|cc|py|pyi|sh|lua|md)$|^templates/|^\.ci/run$' |
        grep -vE '^tests/specs/(golden|bad)/|^templates/package_|^specs/CATALOGUE\.md$' |
        grep -vE '^tests/(cuda/headers\.cc|gpu/matrix_rules\.sh|parts/mutations\.sh)$' |
        while read -r file; do [ ! -f "$file" ] || echo "$file"; done
}
# FOLDER FILE:LINE COLUMNS; bytes 0x80 to 0xbf continue a character
long() {
    sources | xargs awk 'FNR == 1 { code = 0 }
        { gsub(/[\200-\277]/, "") }
        FILENAME ~ /\.md$/ && /^ *```/ { code = !code }
        FILENAME ~ /\.md$/ && (code || /^ *[|<]/ || /^    / || /^!?\[/ || /^#/) { next }
        length($0) > 100 {
            dir = FILENAME; sub("/[^/]*$", "", dir); print dir, FILENAME ":" FNR, length($0) }'
}
if [ "${1:-}" = count ]; then
    long | awk '{ n[$1]++ } END { for (dir in n) print n[dir], dir }' | sort -rn
    exit
fi
[ "$(sources | wc -l)" -gt 1000 ] || [ ! -e .git ] ||
    { echo "columns.sh finds no sources"; exit 1; }
long | awk '{ print $2 " has " $3 " columns: wrap it at 100"; bad = 1 } END { exit bad }'
echo "every line has at most 100 columns"
