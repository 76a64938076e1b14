#!/bin/sh
# Checks the documentation pages: the measured table against tests/bench/h200.txt, and every
# command. README.md and runtime/C.md are followed as a newcomer would: a block ```c step.c is a
# file, ```sh is run, ```text is looked for in the output, line by line. In gen/IR.md the block
# after ```sh is the exact output. layout.sh checks links and file names.
#   BUILD=build     the build folder
#   UPDATE=1        writes the outputs in gen/IR.md again
#   readme.sh table prints the rows of figures
set -u
passed=0 failed=0
top=$PWD build=$PWD/${BUILD:-build}
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); printf '%s\n' "$*" | head -20; }

# work, rule, and the row's title in README.md or
# tests/bench/README.md; the figures come from the rows of the run
table() {
    awk -F'|' 'NR == FNR { name[$1] = $2; order[++n] = $1; next }
        { split($0, f, " "); key = f[1] " " f[2]
          if (!(key in name) || f[4] !~ /ms$/) next
          graph = f[13] ~ /ms$/
          torch = f[11] == "-" ? "" : digits(f[11] + 0)
          faster = f[11] == "-" ? "" : digits(f[12] + 0) "×"
          row[key] = sprintf("| %s | %s | %.0f %% | %s%s | %s%s |", name[key],
              digits(f[4] + 0), f[7] + 0,
                             torch, graph ? " (" digits(f[13] + 0) ")" : "",
                             faster, graph ? " (" digits(f[14] + 0) "×)" : "") }
        END { for (i = 1; i <= n; i++) if (order[i] in row) print row[order[i]] }
        function digits(x) {
            return sprintf(x < 1 ? "%.3f" : x < 10 ? "%.2f" : x < 100 ? "%.1f" : "%.0f", x) }
        ' - tests/bench/h200.txt <<'N'
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
cat README.md tests/bench/README.md | grep '^| .* %' | sort > "$work/said"
sort "$work/rows" | diff - "$work/said" > "$work/diff" && ok ||
    bad "the tables of README.md and tests/bench/README.md differ from tests/bench/h200.txt \
('sh tests/parts/readme.sh table' prints the rows):" \
        "$(cat "$work/diff")"

count="$("$build/optc" list --names | grep -c .) rules"
count="$count and $("$build/optc" list --names --wrappers | grep -c .) wrappers"
grep -q "$count" README.md && ok || bad "README.md does not say '$count'"

# ---- files and commands of the pages
mkdir "$work/clone"
ln -s "$build" "$work/clone/build"
ln -s "$top/runtime" "$work/clone/runtime"
follow() {
    page=$1
    rm -f "$work"/[0-9]*
    awk -v to="$work" '
        /^```/ && !inside {
            split($0, w, " "); kind = substr(w[1], 4); inside = 1; n++
            file = w[2] != "" ? to "/clone/" w[2] : "/dev/null"
            if (w[2] == "" && (kind == "sh" ||
                kind == "text")) file = sprintf("%s/%03d.%s", to, n, kind)
            printf "" > file; next }
        /^```/ { inside = 0; close(file); next }
        inside { print > file }' "$top/$page"
    for step in "$work"/[0-9]*; do
        case $step in
        *.sh)
            sh -eu "$step" > "$work/said" 2>&1 </dev/null && ok ||
                bad "$page: $(cat "$step"): $(cat "$work/said")" ;;
        *.text)
            while IFS= read -r line; do
                grep -qxF -- "$line" "$work/said" && ok ||
                    bad "$page has '$line', and it was: $(cat "$work/said")"
            done < "$step" ;;
        esac
    done
}
cd "$work/clone" || exit 1
before=$passed
follow README.md
[ $((passed - before)) -gt 10 ] && ok || bad "README.md's commands were not found"
# the error that it quotes
sed 's/- beta)/- betta)/' mine.lua > wrong.lua
said=$(tr '\n' ' ' < "$top/README.md" | grep -o "'betta' is not declared; did you mean 'beta'?" ||
    echo none)
"$build/optc" check wrong.lua 2>&1 | grep -qF "$said" && ok ||
    bad "the error that README.md quotes: $("$build/optc" check wrong.lua 2>&1)"
link="-I$top/runtime -L$build -loptc -Wl,-rpath,$build"
${CC:-cc} -std=c11 -Wall -Wextra -Werror step.c -o strict $link 2> "$work/said" && ok ||
    bad "step.c: $(cat "$work/said")"
follow runtime/FUNCTIONS.md
if command -v g++ >/dev/null 2>&1; then
    follow runtime/C.md
    ./step++ > "$work/said"
    grep -q "^adamw.*clip.* on cpu: .* norm 768$" "$work/said" && ok ||
        bad "step.cc: $(cat "$work/said")"
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror device.c -o strict $link 2> "$work/said" && ok ||
        bad "device.c: $(cat "$work/said")"
    g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror step.cc -o strict $link 2> "$work/said" && ok ||
        bad "step.cc: $(cat "$work/said")"
else
    echo "skipped: the C++ of runtime/C.md (no g++)"
    [ -z "${CI:-}" ] || failed=$((failed + 1))
fi

# commands inside of sentences and tables: those that are short and need no NVRTC are run; the
# options of all must exist
for c in bench cache check checkpoint compile doctor dump emit explain list new race ship try tune
    do
    "$build/optc" help "$c"
done > "$work/help" 2>&1
PATH=$build:$PATH
for page in README.md tools/README.md; do
    tr '\n' ' ' < "$top/$page" | grep -oE '`(build/)?optc [^`]*`' | tr -d '`' |
        sort -u > "$work/commands"
    while IFS= read -r command; do
        case $command in
        *"optc "[A-Z]* | *"optc help COMMAND" | *"optc new NAME" | *"optc checkpoint show"*) ;;
        *"optc "list* | *"optc "new* | *"optc "check* | *"optc "explain* | *"optc "emit* | \
            *"optc "dump* | \
            *"optc "cache* | *"optc "doctor* | *"optc "help* | *"optc "try*)
            rm -f mine2.lua
            sh -eu -c "$(printf %s "$command" |
                sed 's/new mine$/new mine2/')" > "$work/said" 2>&1 </dev/null && ok ||
                bad "$page: $command: $(cat "$work/said")" ;;
        esac
    done < "$work/commands"
    for option in $(grep -oE '[` ]--[a-z][a-z-]*' "$top/$page" | tr -d '` ' | sort -u); do
        grep -q -- "$option\b" "$work/help" && ok || bad "$page: no subcommand has $option"
    done
done

# ---- gen/IR.md: each block after ```sh is what the commands print
awk '
    /^```/ && !inside {
        inside = 1; print
        kind = $0 == "```sh" ? "sh" : command != "" ? "output" : "other"
        file = split($0, w, " ") > 1 ? w[2] : "/dev/null"
        if (kind == "output") { while ((command | getline line) > 0) print line; close(command) }
        if (kind != "other") command = ""
        next }
    /^```/ { inside = 0; close(file); print; next }
    !inside { command = ""; print; next }
    kind == "sh" { command = command $0 "\n" }
    kind == "other" { print > file }
    kind != "output"' "$top/gen/IR.md" > "$work/page"
[ -z "${UPDATE:-}" ] || cp "$work/page" "$top/gen/IR.md"
diff "$top/gen/IR.md" "$work/page" > "$work/diff" && ok ||
    bad "gen/IR.md is out of date ('UPDATE=1 sh tests/parts/readme.sh' writes it again): $(cat \
    "$work/diff")"
[ "$(grep -c '^  %[0-9]* = \|step_1_map' "$work/page")" -gt 15 ] && ok ||
    bad "gen/IR.md's example printed nothing"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
