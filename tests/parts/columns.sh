#!/bin/sh
# No source line has more than 120 columns (characters, not bytes). `columns.sh count` prints how
# many each folder has. In tests/specs/bad a line `-- expect: …` quotes a message and may be longer.
set -eu
export LC_ALL=C
sources() {
    find Makefile gen runtime specs templates tests tools -type f \( -name '*.[ch]' -o -name \
        '*.py' -o -name '*.sh' -o -name '*.lua' -o -name '*.def' -o -name Makefile \) |
        grep -v /__pycache__/ | sort
}
# FOLDER FILE:LINE COLUMNS; bytes 0x80 to 0xbf continue a character
long() {
    sources | xargs awk '{ gsub(/[\200-\277]/, "") }
        /^-- expect: / && FILENAME ~ /^tests\/specs\/bad\// { next }
        length($0) > 120 { dir = FILENAME; sub("/[^/]*$", "", dir);
            print dir, FILENAME ":" FNR, length($0) }'
}
if [ "${1:-}" = count ]; then
    long | awk '{ n[$1]++ } END { for (dir in n) print n[dir], dir }' | sort -rn
    exit
fi
long | awk '{ print $2 " has " $3 " columns: wrap it at 120"; bad = 1 } END { exit bad }'
echo "every source line has at most 120 columns"
