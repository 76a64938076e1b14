#!/bin/sh
# Tests what the tables of options generate: the pages of `optc help`, the manual page, completion.
# $OPTC is the command.
set -u
passed=0 failed=0
check() {
    if eval "$2"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "$1"; fi
}
said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT

for page in 'cache ls' 'cache verify' 'tune export' 'checkpoint show' bench; do
    check "help $page: no page" '"$OPTC" help $page | grep -q "^usage: optc ${page%% *}"'
done
"$OPTC" help cache lss 2> "$said/wrong"
check "help cache lss: exit code $?" "[ $? = 2 ]"
check "help cache lss: $(cat "$said/wrong")" \
    'grep -q "has no action .lss.: optc cache ls|verify" "$said/wrong"'

# Every option of every page is in the manual and in completion.
"$OPTC" help --man > "$said/optc.1"
"$OPTC" help --completion bash > "$said/bash"
"$OPTC" help --completion zsh > "$said/zsh"
sed 's/\\-/-/g; s/\\f[BRI]//g' "$said/optc.1" > "$said/plain"
commands=$("$OPTC" help | sed -n 's/^  \([a-z]*\)  *.*/\1/p')
check "few commands: $commands" '[ "$(echo "$commands" | wc -l)" -gt 15 ]'
for c in $commands; do
    check "the manual has no optc $c" 'grep -q "^\.SS optc $c " "$said/optc.1"'
    for o in $("$OPTC" help "$c" | sed -n 's/^  [- ][a-zA-Z ] --\([a-z-]*\).*/\1/p'); do
        check "the manual has no --$o" 'grep -qE -- "^(-[a-zA-Z], )?--$o( |$)" "$said/plain"'
        check "bash does not complete $c --$o" 'grep -q "^    .$c .\*).* --$o[ '"'"']" "$said/bash"'
        check "zsh does not complete $c --$o" \
            'sed -n "/^    $c) /,/;;$/p" "$said/zsh" | grep -qE "^ *.--$o(=|\[)"'
    done
done
check "help --man has a line that is no request of roff" \
    '! grep "^[.'"'"']" "$said/optc.1" | grep -qvE "^\.(TH|SH|SS|TP|PP|B|I|nf|fi)( |$)"'

# Completion in bash: commands, actions, options, names of rules; check is no prefix of checkpoint.
if command -v bash > /dev/null; then
    offers() {
        PATH="$(dirname "$OPTC"):$PATH" bash -c '. "$0"; shift 0; COMP_WORDS=(optc "$@")
            COMP_CWORD=$#; _optc; echo " ${COMPREPLY[*]} "' "$said/bash" "$@"
    }
    check "bash: exp: $(offers exp)" '[ "$(offers exp)" = " explain " ]'
    check "bash: cache l: $(offers cache l)" '[ "$(offers cache l)" = " ls " ]'
    check "bash: checkpoint --js: $(offers checkpoint --js)" \
        '[ "$(offers checkpoint --js)" = " --json " ]'
    check "bash: tune show --js" '[ "$(offers tune show --js)" = " --json " ]'
    check "bash: check adamw" 'case "$(offers check adamw)" in *" adamw "*) ;; *) false ;; esac'
    check "bash: a reader that ends early" 'bash -c "set -o pipefail; \"$OPTC\" list | head -1" |
        grep -q rules'
    bash -c 'set -o pipefail; "$OPTC" list | head -1 > /dev/null'
    check "optc list | head -1: exit code $?" "[ $? = 0 ]"
fi

# No escapes for a terminal that knows none.
if command -v script > /dev/null; then
    shown() { TERM=$1 script -qec "'$OPTC' help bench" /dev/null < /dev/null; }
    check "no escapes on a terminal" 'shown xterm | grep -q "$(printf "\033")"'
    check "escapes with TERM=dumb" '! shown dumb | grep -q "$(printf "\033")"'
fi
echo "help: $passed passed, $failed failed"
[ $failed = 0 ]
