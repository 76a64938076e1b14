#!/bin/sh
# functions.sh [--own | --pasted] FILE…: prints the functions that C files define, one per line. In
# the source of a package --own takes only the code outside the pasted runtime sources (which are
# marked "==== path ===="), and --pasted only the pasted ones.
part=all
case "$1" in --*) part=${1#--}; shift ;; esac
awk -v part="$part" '
    FNR == 1 { inside = 0 }
    /^\/\* ==== .*\/.* ==== \*\/$/ { inside = 1 }
    /^\/\* ==== of this package ==== \*\/$/ { inside = 0 }
    part == "own" && inside || part == "pasted" && !inside { next }
    /^[a-zA-Z].*\(/ && !/^(typedef|struct|enum|union|extern|return|else)/ { head = $0 }
    /^\{/ && head != "" { name(head); head = "" }
    /^[a-zA-Z].*\).*\{.*\}$/ && !/^(typedef|enum|struct|union)/ && !/ = \{/ { name($0); head = "" }
    /;$/ { head = "" }
    function name(s)
    {
        gsub(/__attribute__\(\([^()]*(\([^()]*\)[^()]*)*\)\)/, "", s)
        sub(/\(.*/, "", s)
        sub(/.*[ *]/, "", s)
        if (s != "" && s !~ /^[A-Z_]+$/)
            print s
    }' "$@" | sort -u
