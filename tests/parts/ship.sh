#!/bin/sh
# Tests packages: two builds are identical, every compiler here builds them without a warning, and
# their results equal the library's bit for bit. Also damaged packages, missing architectures, old
# drivers and bad input; failures leave no files. tests/gpu/ship.sh tests packages on a GPU.
set -u
. tests/parts/ship_checks.sh

# ---- identical builds, complete contents: three rules for one architecture and as PTX (OPTC_ALL:
# for all), a small rule for every architecture
known=$("$optc" compile sgd --arch sm_7 2>&1 | sed -n 's/.*it knows:\([^)]*\)).*/\1/p' | head -1)
check "NVRTC names no architecture" '[ -n "$known" ]'
some=sm_90
[ -z "${OPTC_ALL:-}" ] || some=$known
archs=$(echo $some | tr ' ' ,)
rules() { "$optc" ship 'adamw+clip(1)' adafactor 'sgd+lookahead(2,0.5)' --ptx "$@"; }
expect 0 "3 rules" rules --arch $archs -o "$work/rules"
mkdir two
if [ -n "${OPTC_ALL:-}" ]; then
    expect 0 "3 rules" \
        sh -c "cd two && '$optc' ship 'adamw+clip(1)' adafactor --ptx 'sgd+lookahead(2,0.5)' -o \
rules/ --arch $archs"
    expect 0 "" diff -r rules two/rules
# two small rules twice; NVRTC takes seconds for the three
else
    mkdir one
    expect 0 "2 rules" "$optc" ship sgd 'sgd+lookahead(2,0.5)' --ptx --arch $archs \
        -o "$work/one/rules"
    expect 0 "2 rules" sh -c "cd two && '$optc' ship sgd --ptx 'sgd+lookahead(2,0.5)' -o rules/ \
--arch $archs"
    expect 0 "" diff -r one/rules two/rules
    rm -r one two/rules
    cp -r rules two/rules
fi
check "a path of this machine is in the package" '! grep -rqF "$work" rules &&
    ! grep -rqF "$top" rules'
"$optc" ship --check rules > checked 2>&1 || bad "a good package: $(cat checked)"
check "the check finds something: $(cat checked)" '! grep -q "BAD\|no part" checked'
for a in $some compute_; do check "$a is not in the package" 'grep -q "ok   $a" checked'; done
check "no GPU is said to be here" 'grep -q "^here: no CUDA driver.*takes its CPU path" checked'
if command -v cuobjdump >/dev/null 2>&1; then
    for a in $some; do check "cuobjdump finds no $a" \
        'cuobjdump -lelf rules/rules.fatbin | grep -q "\.$a\."'; done
fi
expect 0 "1 rule" "$optc" ship sgd --arch all -o every
"$optc" ship --check every > checked 2>&1 || bad "a good package: $(cat checked)"
for a in $known; do check "$a is not in the package for all" 'grep -q "ok   $a" checked'; done
# the words in rules.c equal the fatbin file
sed -n '/fatbin_words/,/};/p' rules/rules.c | grep -o '0x[0-9a-f]*' |
    awk '{ s = substr($0, 3); while (length(s) < 16) s = "0" s;
    for (i = 15; i >= 1; i -= 2) print substr(s, i, 2) }' |
    head -n "$(wc -c < rules/rules.fatbin)" > words
expect 0 "" sh -c "od -An -v -tx1 -w1 rules/rules.fatbin | tr -d ' ' | cmp - words"
# fatbinary of the CUDA toolkit packs it too
tool=$(command -v fatbinary || ls "${CUDA_HOME:-/usr/local/cuda}/bin/fatbinary" 2>/dev/null || true)
if [ -n "$tool" ]; then
    export OPTC_NO_NVFATBIN=1 OPTC_FATBINARY="$tool"
    expect 0 "1 rule, 2 architectures and PTX" "$optc" ship sgd --arch sm_90,sm_80,sm_90 \
        --ptx -o tooled
    expect 0 "1 rule" "$optc" ship sgd --arch sm_80,sm_90 --ptx -o tooled2 --name tooled
    unset OPTC_NO_NVFATBIN OPTC_FATBINARY
    expect 0 "" diff -r tooled tooled2
    for a in sm_80 sm_90 compute_80; do expect 0 "ok   $a: " "$optc" ship --check tooled; done
    check "the manifest names no packer" 'grep -qx "packer fatbinary" tooled/manifest'
else
    echo "fatbinary is not here: not tried"
fi

# ---- every compiler, as C and as C++, without a warning; other levels are tested below and by
# tests/parts/ship_cpu.sh
compare="-I$top/runtime $top/tests/ship/compare.c -Wl,-rpath,$work $lib"
have=
for cc in gcc clang; do
    command -v $cc >/dev/null 2>&1 || { skipped "packages built by $cc (it is not here)"; continue
        }
    have="$have $cc"
    # one language of each compiler runs; the other one is only compiled (OPTC_ALL: both run)
    if [ $cc = gcc ] || [ -n "${OPTC_ALL:-}" ]; then
        job $cc-c $cc -std=c11 -O0 -Wall -Wextra -Wpedantic -Werror -DRULES_NO_CLONES \
            -Irules rules/rules.c rules/example.c -o example-$cc-c -lm -ldl
    else
        job $cc-c $cc -std=c11 -Wall -Wextra -Wpedantic -Werror -DRULES_NO_CLONES -fsyntax-only \
            rules/rules.c
    fi
    echo 'int main() { return 0; }' | $cc -x c++ -o /dev/null - -lstdc++ 2>/dev/null ||
        { skipped "packages as C++ by $cc (it has no C++)"; continue; }
    if [ $cc = clang ] || [ -n "${OPTC_ALL:-}" ]; then
        job $cc-c++ $cc -x c++ -std=c++17 -O0 -Wall -Wextra -Werror -DRULES_NO_CLONES \
            -Irules rules/rules.c rules/example.c -o example-$cc-c++ -lm -ldl -lstdc++
    else
        job $cc-c++ $cc -x c++ -std=c++17 -Wall -Wextra -Werror -DRULES_NO_CLONES -fsyntax-only \
            rules/rules.c
    fi
    wait
done
job make make -s -C rules CC="${CC:-cc}" ARCH="-Wall -Wextra -Werror"
wait
all_quiet
for b in ./rules/example ./example-*; do
    expect 0 "after   20 steps" $b cpu 20
    $b cpu 20 2>&1 | sed 1d > said.now
    [ -f said ] || cp said.now said
    expect 0 "" cmp said said.now
done
expect 0 "no CUDA driver" rules/example best 3
names=$(nm -g --defined-only rules/rules.o | awk '{ print $NF }')
check "exported without the package's name: $names" '[ -n "$names" ] &&
    ! printf "%s\n" "$names" | grep -qvx "rules_.*\|optc_team_started_by\|optc_blas_[a-z]*"'
expect 1 "rules_open: cuda:0: no CUDA driver" rules/example cuda
expect 1 "no device 'gpu'" rules/example gpu
expect 0 "librules.a is not part of the package" "$optc" ship --check rules

# ---- one runtime: no function of a package's own code is also in the library, and a package
# contains all of runtime/core. The core also compiles as C++17 in one file, as in a package
sh "$top/tests/parts/functions.sh" "$top"/runtime/core/*/*.c "$top"/runtime/library/*.c \
    "$top"/runtime/library/*/*.c |
    LC_ALL=C sort > functions-library
sh "$top/tests/parts/functions.sh" "$top"/runtime/core/*/*.c | LC_ALL=C sort > functions-core
sh "$top/tests/parts/functions.sh" --own rules/rules.c | sed 's/^rules_/optc_/' |
    LC_ALL=C sort > functions-own
# the fake NVRTC: only the sources matter, and a package without GPU code would lack those of GPUs
expect 0 "1 rule" env FAKE_CODE=1 OPTC_NVRTC="$fakes/nvrtc" LD_LIBRARY_PATH="$top/$BUILD/emu" \
    "$optc" ship muon --functions all --arch sm_90 --name rules -o products
sh "$top/tests/parts/functions.sh" --pasted products/rules.c | sed 's/^rules_/optc_/' |
    LC_ALL=C sort > functions-pasted
check "functions of the package were not found: $(wc -l < functions-own)" \
    '[ "$(grep -c "^packed_" functions-own)" -gt 5 ] && [ "$(wc -l < functions-core)" -gt 150 ]'
check "in both runtimes: $(LC_ALL=C comm -12 functions-own functions-library | tr "\n" " ")" \
    '[ -z "$(LC_ALL=C comm -12 functions-own functions-library)" ]'
check "not in the package: $(LC_ALL=C comm -13 functions-pasted functions-core | tr "\n" " ")" \
    '[ -z "$(LC_ALL=C comm -13 functions-pasted functions-core)" ]'
# code for products is only in packages that have products, and compiles without warnings too
# (no_matrix_calls.h stands for it)
check "products in a package without any" \
    '! grep "==== runtime/core/matrix/" rules/rules.c | grep -v /no_matrix_calls.h'
printf '#include "%s"\n' "$top"/runtime/core/*/*.c > core.cc
as_c="-std=c11 -Wpedantic products/rules.c" as_cxx="-x c++ -std=c++17 products/rules.c"
as_core="-x c++ -std=c++17 -D_GNU_SOURCE -I$top -Wpedantic core.cc"
for cc in $have; do
    # without OPTC_ALL each language by one compiler
    if [ -n "${OPTC_ALL:-}" ] || [ $cc = clang ]; then
        expect 0 "" $cc -Wall -Wextra -Werror -fsyntax-only $as_c
    fi
    if [ -n "${OPTC_ALL:-}" ] || [ $cc = gcc ]; then
        expect 0 "" $cc -Wall -Wextra -Werror -fsyntax-only $as_cxx
        expect 0 "" $cc -Wall -Wextra -Werror -fsyntax-only $as_core
    fi
done

# ---- against the library, bit for bit: vector levels chosen at run time, contraction allowed by
# the flags, no OpenMP, sanitizers
omp() { echo 'int main(void) { return 0; }' | $1 -fopenmp -x c -o /dev/null - 2>/dev/null &&
    echo -fopenmp; }
# on aarch64 clang 14 knows only -mcpu=native
native() { for f in -march=native -mcpu=native
    do ! $1 $f -x c -S -o /dev/null /dev/null 2>/dev/null ||
    { echo $f; return; }; done; }
# compare1 has the object that the package's Makefile built above: -O3, vector levels, OpenMP
job compare1 ${CC:-cc} -O0 $(omp "${CC:-cc}") -Wall -Wextra -Werror -Irules $compare rules/rules.o \
    -lm -ldl -o compare1
# ship_cpu.sh: gcc at -O2 with $(native gcc)
source=quick.c
sh "$top/tests/parts/quick_runtime.sh" rules/rules.c > $source
set -- clang "-O1 $(native clang) $(omp clang)"
[ -z "${OPTC_ALL:-}" ] || source=rules/rules.c
[ -z "${OPTC_ALL:-}" ] || set -- clang "-O3 $(native clang) $(omp clang)" \
    gcc "-O2 -DRULES_NO_CLONES $(native gcc)" gcc "-O0 $(omp gcc)" gcc "-O1 $(omp gcc)" gcc \
    "-Os -DRULES_NO_CLONES"
n=1
while [ $# -gt 1 ]; do
    n=$((n + 1))
    case "$have" in *$1*) job compare$n $1 $2 -Wall -Wextra -Werror -Irules $compare \
        $source -lm -ldl -o compare$n ;; esac
    [ $((n % 2)) = 1 ] || wait
    shift 2
done
checked="-O0 -DRULES_NO_CLONES -fsanitize=address,undefined -fno-sanitize-recover=undefined"
checked="$checked -Wall -Wextra -Werror -Irules"
# clang takes a third of gcc's time for this (OPTC_ALL: gcc). It reports NULL + 0, which gcc does
# not.
checker=${CC:-cc}
[ -n "${OPTC_ALL:-}" ] || ! echo 'int main(void) { return 0; }' |
    clang $checked -fno-sanitize=pointer-overflow -x c -o /dev/null - 2>/dev/null ||
    checker=clang checked="$checked -fno-sanitize=pointer-overflow"
job checked $checker $checked -c rules/rules.c -o checked.o
# The thread sanitizer does not know the library's OpenMP: only the example, in one thread. setarch
# -R turns off address randomisation where the kernel uses more bits than the sanitizer supports.
tsan=
[ -z "${OPTC_ALL:-}" ] || echo 'int main(void) { return 0; }' |
    gcc -fsanitize=thread -x c -o tsan - 2>/dev/null &&
    for how in "" "setarch -R"; do $how ./tsan 2>/dev/null &&
    tsan="$how ./example-tsan" && break; done
[ -z "$tsan" ] || job tsan gcc -O0 -fsanitize=thread -Irules rules/rules.c rules/example.c -lm \
    -ldl -o example-tsan
all_quiet
job compare-checked $checker $checked $compare checked.o -lm -ldl -o compare0
job misuse $checker $checked "$top/tests/ship/misuse.c" checked.o -lm -ldl -o misuse
all_quiet
for c in compare?; do
    out=$(./$c cpu f32 adamw_clip adamw 'clip(1)' adafactor adafactor '' sgd_lookahead sgd \
        'lookahead(2,0.5)' 2>&1)
    check "$c: $out" '[ "$(printf "%s\n" "$out" | grep -c ": equal on cpu")" = 3 ]'
done
[ -z "$tsan" ] || expect 0 "after    2 steps" $tsan cpu 2
# ---- flags that change bits are refused by the compiler or by open, or have no effect
parts="-ffast-math -funsafe-math-optimizations -ffinite-math-only -freciprocal-math \
-fno-signed-zeros"
expect 0 "1 rule" "$optc" ship 'adamw+clip(1)' --arch sm_90 --name rules -o flags/
sh "$top/tests/parts/quick_runtime.sh" flags/rules.c > flags/quick.c
check "the runtime code outside of loops was not found" \
    '[ "$(diff flags/rules.c flags/quick.c | grep -c "^>.*\(\"O0\"\|clang optimize off\)")" = 2 ]'
for cc in $have; do
    $cc -O1 -Iflags -I"$top/runtime" -c "$top/tests/ship/compare.c" -o compare-$cc.o
    # Without OPTC_ALL only the flags that a user is likely to give; the single ones are refused
    # below.
    for flag in $parts -Ofast "-fassociative-math -fno-signed-zeros -fno-trapping-math" \
        -mfpmath=387 -fsingle-precision-constant "-fno-honor-nans -fapprox-func" \
        "-std=c11 -ffp-contract=fast $(native $cc)"; do
        case "${OPTC_ALL:-}$flag" in 1* | -ffast-math | *contract*) ;; *) continue ;; esac
        $cc $flag -Werror -x c -S -o /dev/null /dev/null 2>/dev/null || continue
        if $cc -O1 $flag -w -DRULES_NO_CLONES -c flags/quick.c -o flagged.o 2>flagged.said; then
            $cc compare-$cc.o flagged.o -Wl,-rpath,"$work" "$lib" -lm -ldl -o flagged
            out=$(./flagged cpu f32 adamw_clip adamw 'clip(1)' 2>&1)
            check "$cc $flag: $out" 'printf "%s\n" "$out" | grep -q ": equal on cpu" ||
                printf "%s" "$out" | grep -q "compiled with a flag that changes results"'
        else
            check "$cc $flag: $(cat flagged.said)" \
                'grep -q "changes* the results\|no_single_precision_constant" flagged.said'
        fi
    done
done
if echo | gcc -fno-signed-zeros -dM -E - 2>/dev/null | grep -q __NO_SIGNED_ZEROS__; then
    for flag in $parts; do expect 1 "it would change the results" gcc $flag -fsyntax-only \
        rules/rules.c; done
    expect 1 "no_single_precision_constant" gcc -fsingle-precision-constant -fsyntax-only \
        rules/rules.c
fi
expect 0 "all refused" env ASAN_OPTIONS=detect_leaks=1 ./misuse
# other types, a rule with two entries, and a user's rule with inputs of both kinds and with names
# that C and C++ reserve
cat > mine.lua <<'X'
return optimizer {
  name = "mine", hyper = { lr = 0.1, class = 2 }, inputs = { loss = "group", hess = "elem" },
  state = { new = fill(2, "row"), s = copy(p) },
  step = function()
    local errno = g * hess
    s = lerp(s, p, 0.5)
    new = new + lr * rowmean(errno * errno)
    p = p - lr * errno / (1 + loss * loss + class * new) - lr * (p - s)
  end }
X
mkdir t1 t2 t3 t4 t5
# At -O0 clang takes a quarter of gcc's time. gcc checks these files for warnings and compiles the
# last one.
typed() {
    dir=$1 type=$2 spec=$3 with=$4 id=$5 cc=${6:-${CC:-cc}} level=${7:--O0}
    expect 0 "1 rule" "$optc" ship "$spec" --with "$with" --type $type --arch sm_90 -o $dir/rules
    [ $cc = "${CC:-cc}" ] ||
        job warned-$dir ${CC:-cc} -Wall -Wextra -Werror -DRULES_NO_CLONES -fsyntax-only \
        $dir/rules/rules.c
    expect 0 "" $cc $level -Wall -Wextra -Werror -DRULES_NO_CLONES -I$dir/rules \
        -c $dir/rules/rules.c -o $dir/rules.o
    job typed-$dir ${CC:-cc} -O0 -Wall -Wextra -Werror -I$dir/rules $compare $dir/rules.o -lm -ldl \
        -o compare-$dir
    job example-$dir ${CC:-cc} -O0 -Wall -Wextra -Werror -I$dir/rules $dir/rules/example.c \
        $dir/rules.o -lm -ldl -o example-$dir
    all_quiet
    expect 0 "$id: equal on cpu" ./compare-$dir cpu $type $id "$spec" "$with"
    expect 0 "after    5 steps" ./example-$dir cpu 5
}
quick_cc=
case "${OPTC_ALL:-} $have" in " "*clang*) quick_cc=clang ;; esac
typed t1 bf16 adamw 'sam(0.05)' adamw_sam $quick_cc
typed t4 f32 ./mine.lua '' mine $quick_cc
if [ -n "${OPTC_ALL:-}" ]; then
    typed t2 f16 lamb '' lamb
    typed t3 f64 adamw 'clip(1),ema(0.9)' adamw_clip_ema
    typed t5 bf16sr came '' came "${CC:-cc}" -O1
fi

# ---- drivers in every state; these fake GPUs compute nothing but log their launches
unset OPTC_NO_CUDA RULES_NO_CUDA
export LD_LIBRARY_PATH="$fakes/versioned${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FAKE_CUDA=works
ex=./example-gcc-c
[ -x $ex ] || ex=rules/example
expect 0 "cpu: 1 thread (this GPU is sm_70, and the package 'rules' has code for " env \
    FAKE_ARCH=70 $ex best 2
expect 1 "this GPU is sm_70, and the package 'rules' has code for " env FAKE_ARCH=70 $ex cuda
expect 0 "the CUDA driver is too old: it is for CUDA 12.9, and 13.0 or newer is needed" env \
    FAKE_VERSION=12090 $ex best 2
expect 1 "too old" env FAKE_VERSION=12090 $ex cuda 2
expect 1 "the CUDA driver sees no GPU" env FAKE_CUDA=nodevice $ex cuda 2
expect 1 "does not start: cuInit: CUDA_ERROR_UNKNOWN" env FAKE_CUDA=broken $ex cuda 2
expect 1 "there is no cuda:1 (there are 1)" $ex cuda:1 2
expect 1 "cuModuleLoadData: CUDA_ERROR_NO_BINARY_FOR_GPU" env FAKE_CUDA=one $ex cuda 2
expect 0 "cpu: 1 thread (cuModuleLoadData: CUDA_ERROR_NO_BINARY_FOR_GPU" env \
    FAKE_CUDA=one $ex best 2
head -c 1000 rules/rules.fatbin > cut.fatbin
cp rules/rules.fatbin edited.fatbin
printf 'X' | dd of=edited.fatbin bs=1 seek=5000 conv=notrunc 2>/dev/null
expect 1 "cut.fatbin is damaged, or of another package: its size differs" env \
    RULES_FATBIN=cut.fatbin $ex cuda 2
expect 1 "edited.fatbin is damaged, or of another package: its checksum differs" env \
    RULES_FATBIN=edited.fatbin $ex cuda 2
expect 0 "cpu: 1 thread (edited.fatbin is damaged" env RULES_FATBIN=edited.fatbin $ex best 2
expect 1 "none.fatbin cannot be read" env RULES_FATBIN=none.fatbin $ex cuda 2
expect 0 "here: cuda:0, Fake GPU, sm_90: it would load, with its code for sm_90" "$optc" ship \
    --check rules
expect 0 "it would not load (the driver is for CUDA 12.9" env FAKE_VERSION=12090 "$optc" ship \
    --check rules
expect 0 "it would not load (it has no code for sm_70)" env FAKE_ARCH=70 "$optc" ship --check rules
expect 0 "it would load, with its code for compute_" env FAKE_ARCH=999 "$optc" ship --check rules
rm -rf loose && cp -r two/rules loose && cp edited.fatbin loose/rules.fatbin
expect 1 "BAD  sm_90 would be in the fatbin, which is damaged" "$optc" ship --check loose
check "damaged, and it would load: $out" \
    '! printf "%s" "$out" | grep -q "would load\|ok   sm_\|CPU path"'
rm -rf loose
# a package launches what the library launches with the package's code (no compiler, no NVRTC):
# first one by one, then in graphs if there are any
export OPTC_NO_NVRTC=1 OPTC_CACHE_BASE="$work/none:$work/rules" LOG_LIBRARY="$work/log-library" \
    LOG_PACKAGE="$work/log-package" LSAN_OPTIONS=detect_leaks=0
run=./compare1
[ -x $run ] || run=./compare2
for d in versioned symbols; do
    LD_LIBRARY_PATH="$fakes/$d" expect 0 \
        "adamw_clip: from the package rules (sm_90); cuda:0: Fake GPU, code for sm_90" $run \
        launches adamw_clip adamw 'clip(1)'
done
expect 0 "from the package rules (sm_90)" $run launches sgd_lookahead sgd 'lookahead(2,0.5)'
expect 0 "from the package rules (compute_" env FAKE_ARCH=999 $run launches adafactor adafactor ''
expect 0 "from the package rules (sm_90)" env FAKE_GRAPHS=no $run launches adafactor adafactor ''
check "the launches differ" 'cmp log-library log-package && [ "$(wc -l < log-library)" -gt 60 ] &&
    [ "$(grep -c "in a graph" log-library)" -gt 20 ]'
check "a captured step of a rule with periods" \
    'grep -q "^sgd_lookahead_step_phase1_.*guard 1" log-package'
# A package that an earlier version made. If the CUDA source of adamw+clip(1) changes on purpose,
# make it again and tell users: optc ship 'adamw+clip(1)' --code-only --arch sm_90 -o kept
cp -r "$top/tests/ship/kept" kept && chmod -R go-w kept
expect 0 "ok   sm_90" "$optc" ship --check kept
expect 0 "adamw_clip: from the package kept (sm_90)" env OPTC_CACHE_BASE="$work/kept" $run \
    launches adamw_clip adamw 'clip(1)'
printf 'X' | dd of=kept/kept.fatbin bs=1 seek=5000 conv=notrunc 2>/dev/null
expect 1 "/kept: kept.fatbin: its checksum differs from the manifest's; and NVRTC was not found" \
    env OPTC_CACHE_BASE="$work/kept" $run launches adamw_clip adamw 'clip(1)'
truncate -s 5000 kept/kept.fatbin
expect 1 "/kept: kept.fatbin: its size differs from the manifest's; and NVRTC was not found" \
    env OPTC_CACHE_BASE="$work/kept" $run launches adamw_clip adamw 'clip(1)'
cp "$top/tests/ship/kept/kept.fatbin" kept/ && sed -i 's/^  key 9/  key 8/' kept/manifest
expect 1 "the manifest of $work/kept is damaged or was edited: its checksum differs" \
    env OPTC_CACHE_BASE="$work/kept" $run launches adamw_clip adamw 'clip(1)'
expect 1 "/rules: it does not have this rule; and NVRTC was not found" $run launches adamw_clip \
    adamw 'clip(2),cautious'
expect 1 "NVRTC was not found" env OPTC_CACHE_BASE="$work/two" $run launches adamw_clip \
    adamw 'clip(1)'
cp -r rules loose && chmod g+w loose
expect 1 "/loose can be written by its group; and NVRTC was not found" env \
    OPTC_CACHE_BASE="$work/loose" $run launches adamw_clip adamw 'clip(1)'
chmod g-w loose && cp edited.fatbin loose/rules.fatbin
expect 1 "/loose: rules.fatbin: its checksum differs from the manifest's; and NVRTC was not found" \
    env OPTC_CACHE_BASE="$work/loose" $run launches adamw_clip adamw 'clip(1)'
expect 0 "/loose: rules.fatbin: its checksum differs" env OPTC_CACHE_BASE="$work/loose" \
    "$optc" doctor
expect 1 "/rules: it has no code for sm_70; and NVRTC was not found" env FAKE_ARCH=70 $run \
    launches adamw_clip adamw 'clip(1)'
expect 1 "/rules: the driver is for CUDA 12.9, and its code needs one for 13.0 or newer; and NVRTC \
was not found" env \
    FAKE_VERSION=12090 $run launches adamw_clip adamw 'clip(1)'
# "best" is the GPU if a package or NVRTC has code for it, otherwise the CPU
expect 0 "cuda:0: Fake GPU" $run best
expect 0 "cpu: " env OPTC_CACHE_BASE="$work/none" $run best
expect 0 "cpu: " env FAKE_ARCH=70 $run best
unset OPTC_NO_NVRTC OPTC_CACHE_BASE

unset FAKE_CUDA
export OPTC_NO_CUDA=1

# ---- --check: truncated, edited and foreign files
rm -rf loose && cp -r two/rules loose
truncate -s 1000 loose/rules.fatbin
expect 1 "BAD  rules.fatbin: its size differs" "$optc" ship --check loose
rm loose/rules.fatbin
expect 1 "BAD  loose/rules.fatbin: No such file" "$optc" ship --check loose
cp edited.fatbin loose/rules.fatbin
expect 1 "BAD  rules.fatbin: its checksum differs" "$optc" ship --check loose
cp two/rules/rules.fatbin loose/ && sed -i 's/lr/lx/' loose/rules.c
expect 1 "BAD  rules.c: its checksum differs" "$optc" ship --check loose
expect 1 "the package in loose is damaged" "$optc" ship --check loose
cp two/rules/rules.c loose/ && sed -i 's/^  launch sm_90 0:128/  launch sm_90 0:256/' loose/manifest
expect 1 "was edited: its checksum differs" "$optc" ship --check loose
head -c 600 two/rules/manifest > loose/manifest
expect 1 "cut short" "$optc" ship --check loose
printf 'optc-package 3\n' > loose/manifest
expect 1 "not a package of optc, or of another version" "$optc" ship --check loose
sed "s/^optc-package 2/optc-package 1/" two/rules/manifest > loose/manifest
expect 1 "or of another version" "$optc" ship --check loose
expect 1 "No such file" "$optc" ship --check "$top/specs"
expect 1 "No such file" "$optc" ship --check nowhere
expect 2 "--check takes no other options" "$optc" ship --check rules adamw
cp two/rules/manifest loose/manifest
expect 0 "" cmp loose/rules.fatbin two/rules/rules.fatbin

# ---- bad input: no files are left
mkdir clean && cd clean || exit 1
ship1() { "$optc" ship "$@" --arch sm_90; }
expect 2 "no spec is given" ship1 -o out
expect 2 "--ptx needs --arch" "$optc" ship adamw --ptx -o out
expect 2 "-o DIR is missing" ship1 adamw
expect 2 "it knows: sm_" "$optc" ship adamw --arch sm_31 -o out
expect 2 "expected sm_90" "$optc" ship adamw --arch hopper -o out
expect 2 "names no architecture" "$optc" ship adamw --arch '' -o out
expect 2 "--all-specs ships the whole library" ship1 adamw --all-specs -o out
expect 2 "name the folder" ship1 adamw -o .
expect 2 "name the folder" ship1 adamw -o /
expect 2 "'my-rules' is not a name" ship1 adamw -o my-rules
expect 2 "'9' is not a name" ship1 adamw -o out --name 9
expect 2 "those of the library" ship1 adamw -o out --name optc
expect 2 "its example is" ship1 adamw -o example
for name in Makefile CMakeLists; do expect 2 "called '$name': a file of the package is" ship1 \
    adamw -o out --name $name; done
for name in stdio math threads dlfcn cuda; do
    expect 2 "called '$name': its header would take the place" ship1 adamw \
    -o $name; done
for name in sem atomic va; do expect 2 "those of the C library" ship1 adamw -o out --name $name
    done
for name in int class typeof std xor_eq; do
    expect 2 "called '$name': it is a word of C or C++" ship1 adamw -o $name
done
expect 2 "those of the C library" ship1 adamw -o out --name rtld
expect 2 "CMake has that name" ship1 adamw -o out --name m
expect 1 "adamx" ship1 adamw adamx -o out
expect 1 "given twice" ship1 adamw lion adamw -o out
expect 1 "is a wrapper" ship1 ema -o out
expect 1 "no wrapper 'clop'" ship1 adamw --with 'clop(1)' -o out
printf 'return optimizer { name = "x",'\
' step = function() p = p - lrr * g end, hyper = { lr = 1 } }\n' > ../bad.lua
expect 1 "bad.lua:1: 'lrr' is not declared" ship1 ../bad.lua -o out
expect 1 "NVRTC was not found" env OPTC_NO_NVRTC=1 "$optc" ship adamw --arch sm_90 -o out
expect 1 "nothing that packs fatbins was found" env OPTC_NO_NVFATBIN=1 OPTC_FATBINARY= "$optc" \
    ship adamw --arch sm_90 -o out
printf '#!/bin/sh\necho no room\nexit 3\n' > ../broken && chmod +x ../broken
expect 1 "broken failed: no room" env OPTC_NO_NVFATBIN=1 OPTC_FATBINARY="$work/broken" "$optc" \
    ship sgd --arch sm_90 -o out
printf '#!/bin/sh\nhead -c 100 image0 > made\n' > ../broken
expect 1 "does not hold what was put in" env OPTC_NO_NVFATBIN=1 OPTC_FATBINARY="$work/broken" \
    "$optc" ship sgd --arch sm_90 -o out
expect 1 "beside nowhere/out" ship1 adamw -o nowhere/out
check "something was left behind: $(ls -A)" '[ -z "$(ls -A)" ]'
mkdir full && echo mine > full/notes
expect 1 "exists and is not a package" ship1 adamw -o full
mkdir empty
expect 1 "exists and is not a package" ship1 adamw -o empty
echo mine > file
expect 1 "exists and is not a package" ship1 adamw -o file
cp -r ../two/rules rules && echo mine > rules/notes
expect 1 "'notes' is not part of it" ship1 sgd -o rules
check "a refused folder was changed" 'grep -qx mine full/notes && grep -qx mine file &&
    grep -qx mine rules/notes &&
    cmp -s rules/rules.c ../two/rules/rules.c &&
    [ "$(ls -A | tr "\n" " ")" = "empty file full rules " ]'
rm rules/notes && touch rules/rules.o rules/librules.a rules/example
expect 0 "1 rule" ship1 sgd -o rules
check "a package was not replaced: $(ls -A rules)" '! grep -q adamw rules/manifest &&
    [ ! -e rules/rules.o ] &&
    [ "$(ls -A | tr "\n" " ")" = "empty file full rules " ]'
expect 0 "ok   sm_90" "$optc" ship --check rules
if [ "$(id -u)" != 0 ]; then
    chmod a-w empty
    expect 1 "Permission denied" ship1 sgd -o empty/out
fi
# one name twice with different arguments
expect 0 "adamw_clip_2" ship1 'adamw+clip(1)' 'adamw+clip(2)' -o twice
rm -rf twice
# a signal ends the command and removes its unfinished files
# background jobs of scripts ignore SIGINT by default
signals="INT TERM" given="env --default-signal=INT"
$given true 2>/dev/null || { signals=TERM given=; }
for s in $signals; do
    $given "$optc" ship adafactor came adamp lamb --arch all -o stopped >/dev/null 2>&1 &
    id=$!
    while kill -0 $id 2>/dev/null && ! ls -d .stopped-ship.* >/dev/null 2>&1; do sleep 0.02; done
    check "no folder was begun" 'ls -d .stopped-ship.* >/dev/null 2>&1'
    kill -$s $id
    wait $id 2>/dev/null
    rc=$?
    check "SIG$s: exit $rc" '[ $rc -gt 128 ]'
    check "SIG$s left something behind: $(ls -A)" \
        '[ "$(ls -A | tr "\n" " ")" = "empty file full rules " ]'
done

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
