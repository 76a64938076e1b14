#!/bin/sh
# Checks the pages of specs/: `optc check` accepts every ```lua block without a warning. It refuses
# a block ```lua refused, and its message contains the ```text block that follows.
# specs/CATALOGUE.md is the output of `optc list --markdown`.
#   OPTC      the command
#   UPDATE=1  writes specs/CATALOGUE.md again
set -u
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); printf '%s\n' "$*" | head -20; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pages="README CATALOGUE COOKBOOK EXAMPLES MATRICES"
[ -z "${UPDATE:-}" ] || "$OPTC" list --markdown -o specs/CATALOGUE.md
"$OPTC" list --markdown > "$work/catalogue" &&
    diff specs/CATALOGUE.md "$work/catalogue" > "$work/diff" && ok ||
    bad "specs/CATALOGUE.md is not current (UPDATE=1 sh tests/parts/manual.sh writes it): $(cat \
    "$work/diff")"
[ "$(ls specs/*.md | wc -l)" = "$(echo $pages | wc -w)" ] && ok ||
    bad "specs/ has other pages than $pages"

for name in $pages; do
    page=specs/$name.md
    # N.lua, N.refused (a spec that must fail) and N.text (its message)
    awk -v to="$work/$name" '
        /^```/ && !inside { kind = substr($0, 4); inside = 1; n++
            name = kind == "lua" ? n ".lua" : kind == "lua refused" ? n ".refused" : \
                kind == "text" ? n - 1 ".text" : ""
            file = name == "" ? "/dev/null" : to "." name; next }
        /^```/ { inside = 0; close(file); next }
        inside { print > file }' "$page"
done

count=0
for spec in "$work"/*.lua; do
    count=$((count + 1))
    "$OPTC" check "$spec" > "$work/said" 2>&1 && ! grep -q warning "$work/said" && ok ||
        bad "$(cat "$work/said")"
done
for spec in "$work"/*.refused; do
    cp "$spec" "$work/refused.lua"
    ! "$OPTC" check "$work/refused.lua" > "$work/said" 2>&1 &&
        grep -qF "$(cat "${spec%.refused}.text")" "$work/said" &&
        ok || bad "$spec: $(cat "$work/said")"
done
# their steps are written so that wrappers can take them apart
for page in README.md specs/README.md specs/COOKBOOK.md; do
    plain=$(awk '/^```/ { inside = !inside } inside && /p = p - \(?lr/' $page)
    [ -z "$plain" ] && ok || bad "$page: write p = descend(p, u, lr), p = shrink(p, a), not: $plain"
done
[ "$count" -ge 20 ] && ok || bad "only $count specs were found"

# The options of functions, as error messages list them, are on the pages too.
options() {
    printf 'return optimizer { name = "x", rank = 2,'\
' step = rule "adamw", matrix = function()\n%s\np = p - g end }\n' \
        "$1" > "$work/option.lua"
    "$OPTC" check "$work/option.lua" 2>&1 | sed -n "s/.* knows \(.*\)/\1/p" |
        sed "s/, not .*//; s/: .*//" |
        grep -o "[a-z]\{1,\}" | grep -vx 'and\|not'
}
for call in 'polar(g, { x = 1 })' 'power(gram(g), 2, { x = 1 })' 'chol(gram(g), { x = 1 })' \
    'solve(gram(g), g, { x = 1 })' \
            'eigh(gram(g), { x = 1 })' 'qr(gram(g), { x = 1 })' 'every(2, {
            x = 1 }, function() end)'; do
    words=$(options "$call")
    [ -n "$words" ] && ok || bad "no options of $call"
    for word in $words; do
        grep -q "[\`{ ]$word\( =\|\`\)" specs/*.md && ok ||
            bad "no page has the option '$word' of $call"
    done
done
# optc show: two screens for the longest specs; texts, code, states, cost and wrappers come from the
# spec and its plan.
show() { "$OPTC" show "$@" > "$work/said" 2>&1; }
for name in adamw splus psgd_kron shampoo fira mechanic; do
    show "$name" && [ "$(wc -l < "$work/said")" -le 60 ] &&
        ! LC_ALL=C awk '{ gsub(/[\200-\277]/, "") } length > 100' "$work/said" | grep . &&
        ok || bad "show $name: more than 60 lines, or a line of more than 100 columns"
done
has() { grep -qE -- "$1" "$work/said" && ok || bad "show: no line '$1' in $(cat "$work/said")"; }
show fromage
has '^  when to use it  For GANs'
has '^  compared with   jxbz/fromage 4a6593b$'
has '^  accept it       24 of 31: all but cautious_decay, corrected_decay, hyperball, '\
'radial_brake,$'
has '^  with apart=true none'
! grep -qE '^ *(name|cite|doc|use|family|follows|hyper) *=|-- ' "$work/said" && ok ||
    bad "show: texts or comments as code"
show soap
# m, v, and four squares of 4096: 6 * 4096 * 4096 * 4 bytes
has '^  4096x4096 .* TFLOP +403 MB$'
has 'more lines: optc show soap --code$'
show ema
has '^  all tensors +4 bytes per element: ema.avg; ema.exchanged: 8 per tensor$'
has '^  sgd alone +1 +20 '
has '^  it accepts +all [0-9]+$'
show shampoo --code
cmp -s "$work/said" specs/shampoo.lua && ok || bad "show --code: not the spec"
show galore --code
head -n "$(wc -l < specs/wrappers/galore.lua)" "$work/said" | cmp -s - specs/wrappers/galore.lua &&
    grep -q '^--\[==\[ the shared directions.lua:$' "$work/said" &&
    grep -q '^function low.of_rows' "$work/said" &&
    ok || bad "show --code: the text that galore includes is missing"
cp "$work/said" "$work/galore_copy.lua"
"$OPTC" check sgd --with "$work/galore_copy.lua" > "$work/said" 2>&1 && ok ||
    bad "not a spec: $(cat "$work/said")"
! show cauttious && ok || bad "show of an unknown name succeeds"
has "unknown rule or wrapper 'cauttious'; did you mean 'cautious'"

# Every spec has the fields that `show` and the catalogue print. `follows` starts with an
# implementation that a trajectory in tests/specs/refs was made with.
for spec in specs/*.lua specs/wrappers/*.lua; do
    name=$(basename "$spec" .lua) from=
    grep -q '^  use *= "[A-Z]' "$spec" && grep -q '^  family = "[a-z ]*",' "$spec" &&
        grep -q '^\(  family.*\)\?  *follows = "' "$spec" &&
        ok ||
        bad "$spec: no field use, family or follows"
    from=$(sed -n 's/.* follows = "\([^ ,"]*\).*/\1/p' "$spec")
    case $spec in
    specs/wrappers/*) files=$(grep -laE "^with (.*,)?$name([(,].*)?$" tests/specs/refs/*.ref) ;;
    *) files=$(grep -lax "spec $name" tests/specs/refs/"$name"*.ref) ;;
    esac
    [ -n "$files" ] && grep -aqF "$from" $files && ok || bad "$spec: no trajectory of $from"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
