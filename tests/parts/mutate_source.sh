#!/bin/sh
# Changes C sources of the library in one place at a time and reports which test notices. `make
# mutants` calls it.
#   mutate_source.sh SEED N FILE…
#   BUILD              the build folder, up to date
#   CC FLAGS           compiler and flags of the library's sources
#   TESTS GPU_TESTS    objects of build/run-tests and build/gpu-test
#   WRAPPED LIBS       what run-tests, and both are linked with
#   LANES              how many run at a time (default: one per core)
#   MOST               CPU seconds for one change (default 120): then it has survived
#   NOT_RUN            suites and cases to leave out, as suite:NAME or gpu:CASE
# A suite or case of the emulated GPU is run, cheapest first, if it executes the changed line: the
# first run measures that (build/mutants/lines) and takes a quarter of an hour. Changes that do not
# compile, or give the same object, are left out. Limits count CPU seconds.
set -eu
home=$PWD/$BUILD/mutants
lines=$home/lines
export LC_ALL=C OMP_WAIT_POLICY=passive OPTC_THIN=6 OPTC_CFLAGS=-O0 OPTC_TUNE= OPTC_TUNE_SITE= \
    OPTC_FUZZ_SPECS=1 OPTC_TEST_CACHE="$home/cache" CK_TIMEOUT_MULTIPLIER=50
unset OPTC_CACHE OPTC_CACHE_BASE OPTC_CACHE_MAX OPTC_PATH OPTC_CC OPTC_WORKSPACE \
    OPTC_NO_CUDA OPTC_NO_NVRTC 2>/dev/null || true
words() { sed -n "$1" tests/part.sh; }
# suites whose tests need a process each
forked=$(words 's/^ *forked="\(.*\)"/\1/p')
strict="-w -Werror=incompatible-pointer-types -Werror=int-conversion -Werror=format \
-Werror=implicit"

checks() {
    {
        sed -n '/define SUITES/,/[^\\]$/p' tests/harness/suites.h | grep -o 'X([a-z_]*)' |
            sed 's/X(\(.*\))/suite:\1/'
        printf 'gpu:%s\n' library compositions graphs launches live-tuning memory products \
            square-matrices blocks factors eigen codes rounding master types shards alike nccl \
            functions random
    } | grep -vx "$(printf '%s\n' ${NOT_RUN:-nothing})"
}

# link FOLDER OBJECT…: both test programs with these objects in place of the library's. The linker
# takes from the archive only what no object before it defines.
link() {
    to=$1
    shift
    stop=-Wl,--wrap=_ck_assert_failed,-S
    $CC -o "$to/run-tests" $TESTS "$@" "$home/stop.o" "$BUILD/liboptc.a" $WRAPPED $LIBS $stop
    $CC -o "$to/gpu-test" $GPU_TESTS "$@" "$home/stop.o" "$BUILD/liboptc.a" \
        -Wl,--wrap=_mark_point $LIBS $stop
}

# run FOLDER CHECK LIMIT LOG: under a limit of CPU seconds; a clock ends what waits forever
run() (
    name=${2#*:}
    ulimit -t "$3"
    case $2 in
    suite:*)
        case " $forked " in *" $name "*) ;; *) export CK_FORK=no ;; esac
        CK_RUN_SUITE=$name OPTC_CACHE="$OPTC_TEST_CACHE" timeout -k 5 $((300 + 30 * $3)) \
            "$1/run-tests" > "$4" 2>&1 ;;
    gpu:*)
        here=$PWD
        . tests/parts/emulated.sh
        CK_RUN_CASE=$name OPTC_TEST_SMALL=1 OPTC_THIN=24 timeout -k 5 $((300 + 30 * $3)) \
            "$1/gpu-test" > "$4" 2>&1 ;;
    esac
)

# seconds FILE: the CPU seconds of the commands that a shell had run at `times > FILE`
seconds() {
    awk 'NR == 2 { split($1, u, "[ms]"); split($2, s, "[ms]")
        print 60 * u[1] + u[2] + 60 * s[1] + s[2] }' "$1"
}

# measure CHECK: lines/CHECK: its CPU seconds, then FILE LINE for each line that it executes
measure() {
    [ ! -e "$lines/$1" ] || return 0
    mkdir -p "$lines/$1.run"
    export GCOV_PREFIX="$lines/$1.run"
    run "$home/covered" "$1" 1000 "$lines/$1.log" || {
        tail -n 5 "$lines/$1.log"
        echo "$1 fails in a build that counts lines, and is not used"
        echo 0 > "$lines/$1"
        return
    }
    times > "$lines/$1.times"
    cost=$(seconds "$lines/$1.times")
    data=$lines/$1.run$home/covered
    [ ! -d "$data" ] || (cp "$home/covered"/*.gcno "$data" && gcov -t "$data"/*.gcda 2> /dev/null) |
        awk '$1 == "-:" && $2 ~ /^0:Source:/ { file = substr($2, 10) }
            { split($0, part, ":"); count = part[1]; gsub(/ /, "", count)
              if (count + 0 > 0 && file ~ /[.]c$/) print file, part[2] + 0 }' | sort -u \
            > "$lines/$1.new"
    [ -e "$lines/$1.new" ] || : > "$lines/$1.new"
    { echo "$cost"; cat "$lines/$1.new"; } > "$lines/$1"
    rm -rf "$lines/$1.run" "$lines/$1.new" "$lines/$1.log" "$lines/$1.times"
}

# can_see FILE LINE: the checks that execute the line, cheapest first. Lines without code count as
# the lines with code around them.
can_see() {
    around=$(awk -v f="$1" -v at="$2" '$1 != f { next }
        $2 <= at && $2 > low { low = $2 } $2 > at && (!high || $2 < high) { high = $2 }
        END { print low + 0 "|" high + 0 }' "$lines/all")
    for check in $(checks); do
        ! grep -qE "^$1 (${around})$" "$lines/$check" || echo "$(head -n 1 "$lines/$check") $check"
    done | sort -n
}

# try NUMBER FILE LINE BEFORE AFTER: one row of the table
try() {
    me=$home/run.$1
    name=$(printf '%s' "$2" | tr / _)
    link "$me" "$me/$name.o"
    can_see "$2" "$3" > "$me/checks"
    by=SURVIVED
    [ -s "$me/checks" ] || by='SURVIVED: no test executes the line'
    while read -r cost check; do
        times > "$me/times"
        [ "$(seconds "$me/times" | cut -d. -f1)" -lt "${MOST:-120}" ] ||
            { by="SURVIVED: $check and those behind it were not run"; break; }
        rc=0
        run "$me" "$check" "$(awk -v c="$cost" 'BEGIN { print int(10 + 4 * c) }')" "$me/log" \
            < /dev/null 2> /dev/null || rc=$?
        [ $rc != 0 ] || continue
        at=$(sed -n 's/^stopped at .*\/\(.*:[0-9]*\): .*/\1/p
            s/^tests.*\/\(.*:[0-9]*\):[EF]:.*/\1/p' "$me/log" | head -n 1)
        case $rc in
        124) at="waits forever" ;;
        152 | 137) at="runs forever" ;;
        13[0-9]) at="signal $((rc - 128))" ;;
        esac
        by="$check ${at:-exit status $rc}"
        break
    done < "$me/checks"
    times > "$me/times"
    printf '%s:%s\t%s\t%s\t%s\t%.0f s\n' "$2" "$3" "$4" "$5" "$by" "$(seconds "$me/times")"
    rm -rf "$me"
}

if [ "$1" = --measure ]; then
    measure "$2"
    exit
elif [ "$1" = --try ]; then
    tab=$(printf '\t')
    sed -n "$2p" "$home/chosen" > "$home/row.$2"
    IFS=$tab read -r number file line before after < "$home/row.$2"
    rm "$home/row.$2"
    try "$number" "$file" "$line" "$before" "$after"
    exit
fi

seed=$1 wanted=$2 lanes=${LANES:-$(nproc 2>/dev/null || echo 2)}
shift 2
[ $# -gt 0 ] || { echo 'make mutants FILES="runtime/core/memory/*.c" N=60 SEED=1'; exit 2; }
mkdir -p "$home/cache" "$home/covered" "$lines"
chmod 700 "$home/cache"
$CC -std=c11 -O1 -Wall -Wextra -o "$home/mutate_source" tests/mutate/mutate_source.c
$CC -O1 -c -o "$home/stop.o" tests/mutate/stop_at_failure.c

# what executes which line; again if the library, the tests or the files are others
key=$({ echo "$@"; cat "$BUILD/liboptc.a" $TESTS $GPU_TESTS; } | cksum)
if [ "$(cat "$lines/key" 2>/dev/null)" != "$key" ]; then
    rm -rf "$lines" "$home/covered"
    mkdir -p "$lines" "$home/covered"
    objects=
    for file; do
        name=$(printf '%s' "$file" | tr / _)
        $CC $FLAGS -w -O0 --coverage -c -o "$home/covered/$name.o" "$file"
        objects="$objects $home/covered/$name.o"
    done
    link "$home/covered" $objects -lgcov
    gcov -t "$home/covered"/*.gcno 2> /dev/null |
        awk '$1 == "-:" && $2 ~ /^0:Source:/ { file = substr($2, 10) }
            /^ *[#=]*:/ { split($0, part, ":"); print file, part[2] + 0 }' > "$lines/all"
    echo "$key" > "$lines/key"
fi
checks | tac | xargs -P "$lanes" -I{} sh "$0" --measure {}
for check in $(checks); do [ -e "$lines/$check" ] || exit 1; done

# The first changes of the seed's order that compile to another object.
: > "$home/chosen"
"$home/mutate_source" "$seed" "$@" > "$home/list"
same=0 broken=0 n=0
while [ $n -lt "$wanted" ] && IFS= read -r row; do
    number=${row%%	*} file=$(printf '%s' "$row" | cut -f 2)
    name=$(printf '%s' "$file" | tr / _)
    me=$home/run.$number
    mkdir -p "$me"
    [ -e "$home/$name.o" ] && [ "$home/$name.o" -nt "$file" ] ||
        $CC $FLAGS -w -O2 -g0 -c -o "$home/$name.o" "$file"
    "$home/mutate_source" "$seed=$number" "$@" > "$me/$name.c"
    if ! $CC $FLAGS $strict -O2 -g0 -c -o "$me/$name.o" "$me/$name.c" 2> /dev/null; then
        broken=$((broken + 1))
    elif cmp -s "$me/$name.o" "$home/$name.o"; then
        same=$((same + 1))
    else
        n=$((n + 1))
        printf '%s\n' "$row" >> "$home/chosen"
        continue
    fi
    rm -rf "$me"
done < "$home/list"
seq "$n" | xargs -P "$lanes" -I{} sh "$0" --try {} | tee "$home/table"
echo "seed $seed: $(grep -vc SURVIVED "$home/table" || true) of $n changes are noticed;" \
    "left out: $same with the same object, $broken that do not compile"
