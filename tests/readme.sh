#!/bin/sh
# The README as a newcomer follows it: its files are written down, its commands run, what it says they print is looked for; its measured figures are those of
# tests/bench/h200.txt; its links lead somewhere, its lines are short. The pages beside the code likewise.
#   BUILD  the build folder        README.md: a block ```c step.c is a file, ```sh is run, ```text is what the commands before it print, line by line
# readme.sh table: prints the table of figures, for the README.
set -u
passed=0 failed=0
top=$PWD build=$PWD/${BUILD:-build}
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); printf '%s\n' "$*" | head -20; }

# work, rule, what the README calls it; the rest comes from the run's rows
table() {
    awk -F'|' 'NR == FNR { name[$1] = $2; order[++n] = $1; next }
        { split($0, f, " "); key = f[1] " " f[2]
          if (!(key in name) || f[4] !~ /ms$/) next
          graph = f[13] ~ /ms$/
          row[key] = sprintf("| %s | %s | %.0f %% | %s%s | %s%s |", name[key], digits(f[4] + 0), f[7] + 0, f[11] == "-" ? "" : digits(f[11] + 0),
                             graph ? " (" digits(f[13] + 0) ")" : "", f[11] == "-" ? "" : digits(f[12] + 0) "×", graph ? " (" digits(f[14] + 0) "×)" : "") }
        END { for (i = 1; i <= n; i++) if (order[i] in row) print row[order[i]] }
        function digits(x) { return sprintf(x < 1 ? "%.3f" : x < 10 ? "%.2f" : x < 100 ? "%.1f" : "%.0f", x) }' - tests/bench/h200.txt <<'N'
2^28 adamw|AdamW, one tensor of 2^28
gpt2-124m adamw|AdamW, GPT-2 124M, 148 tensors
gpt2-1.5b adamw|AdamW, GPT-2 1.5B, 580 tensors
small5000 adamw|AdamW, 5000 tensors of 4096
gpt2-1.5b adamw+clip(1)|clip by global norm + AdamW, 1.5B
gpt2-1.5b nadam|NAdam, 1.5B
gpt2-1.5b radam|RAdam, 1.5B
gpt2-1.5b adafactor|Adafactor, 1.5B
gpt2-1.5b lamb|LAMB, 1.5B
gpt2-1.5b lion|Lion, 1.5B
gpt2-1.5b adan|Adan, 1.5B
N
}
if [ "${1:-}" = table ]; then
    table
    exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OPTC_CACHE="$work/cache" OPTC_NO_CUDA=1
unset OPTC_CACHE_BASE OPTC_PATH MAKEFLAGS MFLAGS 2>/dev/null

# ---- figures
table > "$work/rows"
[ -s "$work/rows" ] && ok || bad "no figures in tests/bench/h200.txt"
grep '^| .* %' README.md > "$work/said"
diff "$work/rows" "$work/said" > "$work/diff" && ok || bad "README.md's table is not that of tests/bench/h200.txt ('sh tests/readme.sh table' prints it): $(cat "$work/diff")"

count="$("$build/optc" list --names | grep -c .) rules and $("$build/optc" list --names --wrappers | grep -c .) wrappers"
grep -q "$count" README.md && ok || bad "README.md does not say '$count'"

# ---- lines and links
pages="README.md gen/CONTRIBUTING.md runtime/CACHE.md runtime/python/README.md runtime/TUNING.md tools/SHIPPING.md tests/README.md"
for page in $pages; do
    long=$(LC_ALL=C.UTF-8 awk '{ s = $0; gsub(/[\200-\277]/, "", s) } length(s) > 120 { print FILENAME ":" FNR }' "$page")
    [ -z "$long" ] && ok || bad "lines over 120 columns: $long"
    for link in $(grep -o '](\([^)#]*\))' "$page" | sed 's/](\(.*\))/\1/' | grep -v ://); do
        [ -e "$(dirname "$page")/$link" ] && ok || bad "$page: $link is not there"
    done
    for file in $(grep -oE '`[a-z]+/[A-Za-z0-9_./]*[a-z]`' "$page" | tr -d '`' | grep -v '^build/\|^myopt/\|NAME'); do
        [ -e "$file" ] || [ -e "$(dirname "$page")/$file" ] && ok || bad "$page: $file is not there"
    done
done

# ---- what the README has one write and run
mkdir "$work/clone"
ln -s "$build" "$work/clone/build"
ln -s "$top/runtime" "$work/clone/runtime"
awk -v to="$work" '
    /^```/ && !inside { split($0, w, " "); kind = substr(w[1], 4); inside = 1; n++
        file = w[2] != "" ? to "/clone/" w[2] : kind == "sh" || kind == "text" ? sprintf("%s/%03d.%s", to, n, kind) : "/dev/null"; printf "" > file; next }
    /^```/ { inside = 0; close(file); next }
    inside { print > file }' README.md
cd "$work/clone" || exit 1
for step in "$work"/[0-9]*.sh "$work"/[0-9]*.text; do echo "$step"; done | sort | while read -r step; do
    case $step in
    *.sh) sh -eu "$step" > "$work/said" 2>&1 </dev/null && echo ok || { echo "bad $(cat "$step"): $(cat "$work/said")"; } ;;
    *.text)
        while IFS= read -r line; do
            grep -qxF -- "$line" "$work/said" && echo ok || echo "bad README.md says '$line', and it was: $(cat "$work/said")"
        done < "$step" ;;
    esac
done > "$work/verdicts"
passed=$((passed + $(grep -cx ok "$work/verdicts")))
grep -vx ok "$work/verdicts" | head -40
failed=$((failed + $(grep -c '^bad' "$work/verdicts")))
[ "$(grep -cx ok "$work/verdicts")" -gt 10 ] && ok || bad "the README's commands were not found"
# the error that it quotes
sed 's/- beta)/- betta)/' mine.lua > wrong.lua
"$build/optc" check wrong.lua 2>&1 | grep -qF "$(grep -o "'betta' is not declared; did you mean 'beta'?" "$top/README.md" || echo none)" && ok || bad "the error that README.md quotes: $("$build/optc" check wrong.lua 2>&1)"
link="-I$top/runtime -L$build -loptc -Wl,-rpath,$build"
${CC:-cc} -std=c11 -Wall -Wextra -Werror step.c -o strict $link 2> "$work/said" && ok || bad "step.c: $(cat "$work/said")"
if command -v g++ >/dev/null 2>&1; then
    g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror step.cc -o step++ $link 2> "$work/said" && ./step++ > "$work/said" 2>&1 && grep -q "^adamw.*clip.* on cpu: " "$work/said" && ok || bad "step.cc: $(cat "$work/said")"
else
    echo "skipped: the README's C++ (no g++)"
    [ -z "${CI:-}" ] || failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
