#!/bin/sh
# circles.sh: fails on circles of calls between folders of the runtime that circles.txt does not
# list, and on a circle of more than 16 files inside one folder. Run in the root of the tree, with
# BUILD set. `circles.sh show` also prints every circle of files.
#
# A file calls another if its object uses a symbol that the other's object defines (nm). Calls
# through a table of functions count as follows:
#   - a struct of function pointers with two or more implementations (initialised objects in
#     runtime/ and templates/: Device, Host) is an interface: neither calls through it nor the
#     function that returns it are calls of an implementation
#   - of all other structs, a member that is only ever set to one function is that function: files
#     that call the member call the function's file. Members of one name are taken together
set -eu
export LC_ALL=C
obj=$BUILD/obj
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
most=16

find runtime/core runtime/library -name '*.c' ! -name prebuild.c | sort | while read -r c; do
    nm "$obj/${c%.c}.o" | awk -v f="$c" '
        $(NF - 1) == "U" { print "use", f, $NF }
        $(NF - 1) ~ /^[TDBRVWC]$/ { print "def", f, $NF }
        $(NF - 1) == "t" { print "own", f, $NF }'
done > "$work/symbols"
[ -s "$work/symbols" ] || { echo "there are no objects in $obj"; exit 1; }

# STRUCT MEMBER of every function pointer in a header; interfaces are structs with two or more
# initialised objects
headers=$(find runtime/core runtime/library -name '*.h' | sort)
sources=$(find runtime/core runtime/library -name '*.c' | sort)
cat $headers | awk '
    /^(typedef )?struct [A-Z][A-Za-z]* \{/ { name = $1 == "typedef" ? $3 : $2 }
    name != "" && /\(\*[a-z_]+\)\(/ {
        m = $0; sub(/^[^(]*\(\*/, "", m); sub(/\).*/, "", m); print name, m }
    /^\}/ { name = "" }' | sort -u > "$work/members"
cut -d' ' -f1 "$work/members" | sort -u | while read -r type; do
    n=$(cat $sources templates/*.txt | grep -cE "^ *(static )?const $type [a-z_]+ = \{" || true)
    [ "$n" -lt 2 ] || echo "$type"
done > "$work/interfaces"
while read -r type; do
    grep -hoE "const (struct )?$type \*[a-z_]+\(void\)" $headers |
        sed -E 's/.*\*([a-z_]+)\(void\)/\1/'
done < "$work/interfaces" | sort -u > "$work/accessors"

# "set MEMBER FUNCTION FILE", "call MEMBER FILE" for members of structs that are no interfaces
grep -vwFf "$work/interfaces" "$work/members" | cut -d' ' -f2 | sort -u > "$work/own_members"
grep -wFf "$work/interfaces" "$work/members" | cut -d' ' -f2 | sort -u > "$work/shared_members"
grep -vxFf "$work/shared_members" "$work/own_members" > "$work/names" || :
cat > "$work/scan.awk" <<'AWK'
FILENAME == names { name[$1] = 1; next }
{
    line = $0
    while (match(line, /(->|\.)[a-z_]+ = &?[a-z_][a-z_0-9]*/)) {
        s = substr(line, RSTART, RLENGTH); sub(/^(->|\.)/, "", s); split(s, part, / = &?/)
        if (part[1] in name)
            print "set", part[1], part[2], FILENAME
        line = substr(line, RSTART + RLENGTH)
    }
    line = $0
    while (match(line, /(->|\.)[a-z_]+\(/)) {
        s = substr(line, RSTART, RLENGTH - 1); sub(/^(->|\.)/, "", s)
        if (s in name)
            print "call", s, FILENAME
        line = substr(line, RSTART + RLENGTH)
    }
}
AWK
awk -v names="$work/names" -f "$work/scan.awk" "$work/names" $sources | sort -u > "$work/tables"

# the edges: FILE FILE SYMBOL
awk -v accessors="$work/accessors" -v symbols="$work/symbols" '
    function add(f, t, s) { if (f != t) print f, t, s }
    FILENAME == accessors { skip[$1] = 1; next }
    FILENAME == symbols && $1 == "def" { at[$3] = $2; next }
    FILENAME == symbols && $1 == "own" { here[$2, $3] = 1; next }
    FILENAME == symbols { if (!($3 in skip)) use[++nuse] = $2 " " $3; next }
    $1 == "set" {
        file = ($4, $3) in here ? $4 : $3 in at ? at[$3] : ""
        if (file != "" && !(($2, $3) in known)) {
            known[$2, $3] = 1; n[$2]++; of[$2] = file; fn[$2] = $3
        }
        next
    }
    $1 == "call" { call[++ncall] = $2 " " $3 }
    END {
        for (i = 1; i <= nuse; i++) {
            split(use[i], p, " ")
            if (p[2] in at) add(p[1], at[p[2]], p[2])
        }
        for (i = 1; i <= ncall; i++) {
            split(call[i], p, " ")
            if (n[p[1]] == 1) add(p[2], of[p[1]], p[1] "=" fn[p[1]])
        }
    }' "$work/accessors" "$work/symbols" "$work/tables" | sort -u > "$work/edges"

# circles: prints each circle of the graph "FROM TO …", its nodes on one line
circles() {
    awk '{ node[$1]; node[$2]; if ($1 != $2) way[$1, $2] = 1 }
        END {
            for (k in node) for (i in node) if ((i, k) in way)
                for (j in node) if ((k, j) in way) way[i, j] = 1
            for (i in node) if ((i, i) in way && !(i in done)) {
                line = ""; n = 0
                for (j in node) if ((i, j) in way && (j, i) in way) {
                    done[j] = 1; line = line " " j; n++
                }
                print n line
            }
        }'
}

# ---- between folders: the listed calls are left out, and every listed call must exist
awk 'function dir(f) { sub(/\/[^\/]*$/, "", f); return f }
    dir($1) != dir($2) { print dir($1), dir($2), $3 }' "$work/edges" | sort -u > "$work/between"
grep -v '^#' tests/parts/circles.txt | awk 'NF' > "$work/list"
awk 'NF < 4 { print "circles.txt: no reason: " $0 }' "$work/list" > "$work/wrong"
awk '{ print "runtime/" $1, "runtime/" $2, $3 }' "$work/list" | sort -u > "$work/listed"
comm -13 "$work/between" "$work/listed" |
    sed 's/^/circles.txt lists a call that is gone: /' >> "$work/wrong"
comm -23 "$work/between" "$work/listed" > "$work/left"
circles < "$work/left" | while read -r n folders; do
    echo "a circle of $n folders that circles.txt does not list: $folders"
    for f in $folders; do
        for t in $folders; do
            awk -v f="$f" -v t="$t" '$1 == f && $2 == t { s = s " " $3 }
                END { if (s != "") print "    " f " -> " t ":" s }' "$work/left"
        done
    done
done >> "$work/wrong"

# ---- inside a folder
awk 'function dir(f) { sub(/\/[^\/]*$/, "", f); return f }
    dir($1) == dir($2) { print $1, $2 }' "$work/edges" | circles | sort -rn > "$work/inside"
[ "${1:-}" != show ] || cat "$work/inside"
awk -v most=$most '
    $1 > most { print "a circle of " $1 " files inside one folder; at most " most ":" $0 }' \
    "$work/inside" >> "$work/wrong"
if [ -s "$work/wrong" ]; then
    cat "$work/wrong"
    exit 1
fi
largest=$(awk 'NR == 1 { print $1 } END { if (!NR) print 0 }' "$work/inside")
echo "$(wc -l < "$work/between") calls between folders, $(wc -l < "$work/listed") listed ones"
echo "close circles; the largest circle inside a folder has $largest files"
