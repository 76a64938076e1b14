#!/bin/sh
# Checks the source tree: no file name occurs twice, includes follow the allowed directions and have
# no cycles, static functions of runtime/core have unique names (a package pastes them into one
# file), links of pages lead somewhere, and all Python tests are methods. Run in the root of the
# tree. Prints what is wrong and then exits with 1.
set -u
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0
found() { [ ! -s "$1" ] || { wrong=1; echo "$2:"; sed 's/^/    /' "$1"; }; }
sources() { find gen runtime templates tools tests -type f "$@" ! -path '*/__pycache__/*' ! -path \
    'tests/specs/*' ! -path '*/_bundled/*' | sort; }

sources \( -name '*.c' -o -name '*.h' -o -name '*.cc' -o -name '*.def' -o -name '*.py' \) ! -name \
    __init__.py ! -name __main__.py > "$work/files"
sed 's|.*/||' "$work/files" | sort | uniq -d > "$work/twice"
found "$work/twice" "file names that occur twice"

# ---- the top level is fixed; a file that was added by mistake is found here
[ ! -e .git ] || git ls-files | sed 's|/.*||' | sort -u |
    grep -vxE '\..*|Makefile|README.md|LICENSE|gen|runtime|specs|templates|tests|tools' \
    > "$work/top"
[ ! -e "$work/top" ] ||
    found "$work/top" "tracked files and folders that do not belong to the top level"

# ---- Python runs no test that stands below the call of unittest.main
for file in tests/python/test_*.py; do
    awk '/^if __name__ == / { main = 1 } main && /^ *def test/ { print FILENAME ": " $0 }' "$file"
done > "$work/below"
found "$work/below" "Python tests below the call of unittest.main, which never run"

# ---- includes: FILE INCLUDED
sources \( -name '*.c' -o -name '*.h' -o -name '*.cc' -o -name '*.def' \) | xargs awk '
    /^[ \t]*#[ \t]*include[ \t]+"/ { s = $0; sub(/^[^"]*"/, "", s); sub(/".*/, "", s);
        print FILENAME, s }' \
        > "$work/includes"
awk '
    function module(f) {
        return match(f, /^gen\/[a-z]+\//) ? substr(f, 5, RLENGTH - 5) : f ~ /^gen\// ? "gen" : "" }
    function may(from, to) { return from == to || index(" " allowed[from] " ", " " to " ") > 0 }
    BEGIN {
        allowed["base"] = "abi"
        allowed["ir"] = "base abi"
        allowed["front"] = "ir base abi"
        allowed["plan"] = "ir base abi"
        allowed["emit"] = "plan ir base abi"
        allowed["eval"] = "plan ir base abi"
        allowed["gen"] = "front ir plan emit eval base abi"
    }
    $1 ~ /^tests\// { next }
    $1 ~ /^gen\// {
        ok = $2 ~ /^templates\// && module($1) ~ /^(emit|eval)$/ ||
             module($2) != "" && may(module($1), module($2))
    }
    $1 ~ /^templates\// { ok = 0 }
    $1 ~ /^runtime\/core\// { ok = $2 ~ /^(runtime\/core|gen\/abi|templates)\// ||
        $2 == "runtime/optc.h" }
    $1 ~ /^runtime\/core\/(base|bind|cuda)\// {
        ok = $2 ~ /^(runtime\/core\/base|gen\/abi|templates)\// || $2 == "runtime/optc.h" ||
             $1 ~ /\/bind\// && $2 ~ /^runtime\/core\/bind\// ||
             $1 ~ /\/cuda\// && $2 ~ /^runtime\/core\/cuda\//
    }
    $1 ~ /^runtime\/library\// {
        ok = $2 ~ /^(runtime|gen\/abi)\// && $2 != "runtime/library/library.h" || $2 == "gen/gen.h"
    }
    $1 == "runtime/library/library.h" { ok = $2 ~ /^runtime\// ||
        $2 ~ /^gen\/(gen|emit\/package_text)\.h$/ }
    $1 ~ /^tools\// { ok = $2 ~ /^tools\// || $2 == "optc.h" || $2 == "runtime/library/library.h" }
    !ok { print $1 " includes " $2 }' "$work/includes" > "$work/directions"
found "$work/directions" "includes against their direction (.github/CONTRIBUTING.md)"
grep -v '^tests/' "$work/includes" | tsort > /dev/null 2> "$work/cycles" || :
found "$work/cycles" "include cycles"

# ---- one file of a package
for f in runtime/core/*/*.c; do sh tests/parts/functions.sh "$f"; done | sort |
    uniq -d > "$work/static"
found "$work/static" "functions of runtime/core that two of its files define"
grep -rhoE '^(typedef )?(struct|enum) [A-Z][A-Za-z0-9]* \{' runtime/core |
    sed 's/^typedef //' | sort | uniq -d > "$work/types"
found "$work/types" "structs and enums of runtime/core that two of its files define"

# ---- pages: the folders of the code map, links, headings and files that they name, paragraphs of
# at most five lines (columns.sh: 100 columns)
find gen runtime/core runtime/library tools tests -mindepth 2 -type f ! -path '*/__pycache__/*' |
    sed -E 's#^(gen|runtime/core|runtime/library|tools|tests)/([a-z_]+)/.*#\1/\2/#' |
    sort -u > "$work/folders"
{
    sed -n 's/^| `\([a-z_/]*\/\)` |.*/\1/p' gen/ARCHITECTURE.md
    sed -n 's/^| `\([a-z_]*\/\)` |.*/tests\/\1/p' tests/README.md
} | sort > "$work/map"
diff "$work/folders" "$work/map" > "$work/difference"
found "$work/difference" "the tables of folders in ARCHITECTURE.md and tests/README.md (<: missing \
there, >: not in the tree)"
# CATALOGUE.md is generated: only its links are checked.
pages=$(find . -name '*.md' ! -path './build*' ! -path './.git/*' | sed 's|^\./||' | sort)
# the anchors of a page's headings
anchors() {
    awk '/^```/ { code = !code } !code && sub(/^##* /, "")' "$1" | tr 'A-Z ' 'a-z-' |
        tr -cd 'a-z0-9_\n-'
}
for page in $pages; do anchors "$page" | sed "s|^|$page#|"; done > "$work/anchors"
for page in $pages; do
    dir=$(dirname "$page")
    awk '/^ *```/ { code = !code } !code' "$page" > "$work/prose"
    grep -o '](\([^)]*\))' "$work/prose" | sed 's/](\(.*\))/\1/' | grep -v :// |
        while read -r link; do
        to=$page
        [ -z "${link%%#*}" ] || to=$(realpath -m --relative-to=. "$dir/${link%%#*}")
        case $link in
        *#*) grep -qxF -- "$to#${link#*#}" "$work/anchors" || echo "$page: no heading $link" ;;
        *) [ -e "$to" ] || echo "$page: no page $link" ;;
        esac
    done
    [ "$page" != specs/CATALOGUE.md ] || continue
    awk -v page="$page" '/^ *\|/ || /^#/ || /^$/ || /^ *```/ { n = 0; next }
        /^ *([-*]|[0-9]+\.) / { n = 0 }
        ++n == 6 { print page ": a paragraph of more than 5 lines: " $0 }' "$work/prose"
    {
        grep -oE '`[A-Za-z_./]+\.(c|h|def|py|sh|lua|txt)`' "$work/prose"
        grep -oE '`[a-z]+/[A-Za-z0-9_./]*[a-z/]`' "$work/prose"
    } | tr -d '`' | sort -u | while read -r file; do
        case $file in
        # to be made by the reader
        *NAME* | build/* | myopt/* | step.c | root.c | device.c | example.c | myopt.* | mine.lua | \
            ./mine.lua | optc_update.h) ;;
        */*) [ -e "$file" ] || [ -e "$dir/$file" ] || echo "$page: no file $file" ;;
        *) [ -n "$(find . -name "$file" ! -path './build/*' | head -n 1)" ] ||
            echo "$page: no file $file" ;;
        esac
    done
done > "$work/pages"
found "$work/pages" "links, files and paragraphs of pages"

# ---- environment variables: runtime/ENVIRONMENT.md lists those that the sources read
grep -rhoE '"OPTC_[A-Z_]+"' runtime tools --include='*.c' --include='*.h' --include='*.py' |
    tr -d '"' | sort -u > "$work/read"
grep -oE '`OPTC_[A-Z_]+`' runtime/ENVIRONMENT.md | tr -d '`' | sort -u > "$work/listed"
diff "$work/listed" "$work/read" > "$work/difference" || :
found "$work/difference" "variables in runtime/ENVIRONMENT.md (<: only there, >: missing)"

[ $wrong = 0 ] &&
    echo "$(wc -l < "$work/files") source files, $(wc -l < "$work/includes") includes," \
        "$(wc -l < "$work/folders") folders"
exit $wrong
