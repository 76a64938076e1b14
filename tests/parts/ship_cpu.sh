#!/bin/sh
# Tests packages without GPU code: made without NVRTC, built by every compiler here, equal to the
# library. Refused compiler flags give a message that says what to do.
#   BUILD  the build folder
set -u
passed=0 failed=0
top=$PWD optc=$PWD/$BUILD/optc lib=$PWD/$BUILD/liboptc.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OPTC_CACHE="$work/cache" OPTC_NO_NVRTC=1 OPTC_NO_NVFATBIN=1 \
    OPTC_FATBINARY= ASAN_OPTIONS=detect_leaks=0
unset OPTC_CACHE_BASE OPTC_PATH MAKEFLAGS MFLAGS 2>/dev/null
expect() {
    code=$1 part=$2
    shift 2
    out=$("$@" </dev/null 2>&1)
    got=$?
    if [ "$got" = "$code" ] && if [ -n "$part" ]; then printf '%s' "$out" |
        grep -qF -- "$part"; else [ -z "$out" ]; fi; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '%s: exit %s (wanted %s), wanted "%s" in: %s\n' "$*" "$got" "$code" "$part" "$out" |
            head -20
    fi
}
check() { if eval "$2"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "$1"; fi; }
# For packages whose optimized code is tested elsewhere. gcc optimizes their runtime at -O0 too, by
# a pragma; clang does not, and takes a quarter of gcc's time.
quick="${CC:-cc} -O1 -fopenmp"
[ -n "${OPTC_ALL:-}" ] || ! command -v clang >/dev/null 2>&1 || quick="clang -O0"
cd "$work" || exit 1

# one of the rules has matrices in blocks, and a lower triangle
cat > cut.lua <<'X'
return optimizer {
  name = "cut", block = 24, hyper = { lr = 0.02, least = 0.1 },
  state = { L = eye(0.5, "rows"), X = eye(1, "rows"), T = zeros "rows", d = zeros "block row" },
  step = function() p = p - lr * g end,
  matrix = function()
    L = lerp(L, gram(g), 0.25)
    d = rowsum(L)
    T = lerp(T, tril(L), 0.5)
    p = p - 0.001 * lr * mm(T, g)
    p = p - lr * mm(L / (1 + trace(L)) + diag(d / nrows), g) / (1 + max(L))
    X = power(L, -1/4, { relative = 1e-3, floor = least, last = X })
    p = p - lr * take(solve(L + eye(1, "rows"), mm(X, g), { spd = true }), sort(d))
  end }
X
expect 0 "rules: 3 rules, for the CPU alone" "$optc" ship 'adamw+clip(1)' adafactor \
    ./cut.lua -o rules
mkdir two
expect 0 "3 rules" "$optc" ship 'adamw+clip(1)' adafactor ./cut.lua -o two/rules
expect 0 "" diff -r rules two/rules
check "files of a package without GPU code: $(ls rules)" \
    '[ "$(ls rules | tr "\n" " ")" = \
    "CMakeLists.txt LICENSE Makefile example.c manifest rules.c rules.h " ]'
# passes over elements are compiled for several vector levels, stages with few values for one
check "vector levels of stages: $(grep -o 'OPTC_CLONES adafactor_.*(' rules/rules.c)" \
    'grep -q "OPTC_CLONES adafactor_.*_tile" rules/rules.c &&
    grep -q "static void adafactor_.*_row_" rules/rules.c &&
     ! grep -qE "OPTC_CLONES [a-z_0-9]*_(row|col|slice|group|tensor)_?[a-z]*(_[0-9]+)?\(" \
         rules/rules.c'
expect 0 "rules, made by optc 0.1.0: 3 rules" "$optc" ship --check rules
expect 0 "for the CPU alone" "$optc" ship --check rules
expect 0 "here: it has no GPU code, so it takes its CPU path" "$optc" ship --check rules
expect 0 "rules: it has no GPU code" env OPTC_CACHE_BASE="$work/rules" \
    LD_LIBRARY_PATH="$top/$BUILD/fake/versioned" FAKE_CUDA=works "$optc" doctor
expect 0 "1 rule" "$optc" ship sgd -o rules2
expect 2 "--ptx needs --arch: it is made for the lowest architecture" "$optc" ship sgd --ptx -o none
check "a refused one left something" '[ ! -e none ]'

# compiles as C and as C++ without a warning (tests/parts/ship.sh compiles packages at every level);
# the example is built by its Makefile; results equal the library's
for cc in gcc clang; do
    command -v $cc >/dev/null 2>&1 && echo 'int main(void) { return 0; }' |
        $cc -fopenmp -x c -o /dev/null - 2>/dev/null || continue
    for lang in c c++; do
        [ $lang = c ] && std=c11 || std=c++17
        expect 0 "" $cc -x $lang -std=gnu${std#c} -fopenmp -Wall -Wextra -Wpedantic -Werror \
            -DRULES_NO_CLONES -fsyntax-only rules/rules.c
    done
done
# Levels are chosen by glibc's loader. Other C libraries get plain stages: this header names none.
mkdir other
printf '#include_next <features.h>\n#undef __GLIBC__\n' > other/features.h
clones() { gcc "$@" -E rules2/rules2.c | grep -c 'target_clones("default"'; }
if [ "$(uname -m)" = x86_64 ] && [ "$(gcc -dumpversion 2>/dev/null |
    cut -d. -f1)" -ge 12 ] 2>/dev/null; then
    check "no vector levels with glibc" '[ "$(clones)" -gt 0 ]'
    check "vector levels without glibc" '[ "$(clones -Iother)" = 0 ]'
fi
if command -v musl-gcc >/dev/null 2>&1; then
    expect 0 "" musl-gcc -O0 -w -o musl rules2/example.c rules2/rules2.c -lm -ldl
    expect 0 "after    3 steps" ./musl cpu 3
else
    echo "skipped: a package by musl-gcc (Debian: musl-tools); the stages that it would compile \
are tested"
fi
# without OpenMP a package is built for one thread, and make says so
printf '#!/bin/sh\ncase " $* " in *" -fopenmp "*) exit 1 ;; esac\nexec %s "$@"\n' \
    "$quick" > plain-cc
chmod +x plain-cc
cp -r rules2 plain
expect 0 "no OpenMP in" make -C plain CC="$work/plain-cc" CFLAGS=
expect 0 "after    3 steps" plain/example cpu 3
expect 0 "-fopenmp" make -C plain -B -n CC="${CC:-cc}"
rm -r plain
ln -s "$lib" liboptc.so.0
# -march=native has fused operations: the runtime must not use them either. _FORTIFY_SOURCE, which
# distributions set, must not conflict with the runtime's pragmas.
native=$(for f in -march=native -mcpu=native; do ! ${CC:-cc} $f -x c -S -o /dev/null /dev/null \
    2>/dev/null ||
    { echo $f; break; }; done)
expect 0 "" make -s -C rules CC="${CC:-cc}" ARCH="$native" \
    CFLAGS="-O2 -D_FORTIFY_SOURCE=2 -Wall -Wextra -Werror -DRULES_NO_CLONES" example
expect 0 "" ${CC:-cc} -O2 -fopenmp -Irules -I"$top/runtime" "$top/tests/ship/compare.c" \
    rules/rules.o -Wl,-rpath,"$work" "$lib" -lm -ldl -o compare
expect 0 "adamw_clip: equal on cpu" ./compare cpu f32 adamw_clip adamw 'clip(1)'
# installed by its Makefile, found by pkg-config, as a shared library; a package with built files
# can be replaced
expect 0 "" diff "$top/LICENSE" rules/LICENSE
for file in rules.h rules.c Makefile CMakeLists.txt example.c; do
    check "$file names no licence" "head -8 rules/$file | grep -q 'SPDX-License-Identifier: MIT'"
done
expect 0 "" make -s -C rules CC="${CC:-cc}" shared
expect 0 "" make -s -C rules install PREFIX="$work/a place"
flags=$(PKG_CONFIG_PATH="$work/a place/lib/pkgconfig" pkg-config --cflags --libs rules)
expect 0 "" eval "${CC:-cc} rules/example.c -o shared $flags -lm -Wl,-rpath,'$work/a place/lib'"
check "the program does not use the shared library" \
    'ldd ./shared | grep -q "a place/lib/librules.so"'
expect 0 "after   10 steps" ./shared cpu 10
if command -v cmake >/dev/null 2>&1; then
    printf '#!/bin/sh\nexec %s "$@" -O0 -DRULES2_NO_CLONES\n' "${CC:-cc}" > quick-cc &&
        chmod +x quick-cc
    expect 0 "Build files" cmake -S rules2 -B cmade -DCMAKE_C_COMPILER="$work/quick-cc" \
        -DCMAKE_INSTALL_PREFIX="$work/cmake"
    expect 0 "Built target rules2" cmake --build cmade --target rules2
    expect 0 "rules2-config.cmake" cmake -DCMAKE_INSTALL_COMPONENT=Unspecified \
        -P cmade/cmake_install.cmake
    mkdir found && cat > found/CMakeLists.txt <<'X'
cmake_minimum_required(VERSION 3.10)
project(found C)
find_package(rules2 0.1 REQUIRED)
add_executable(found ../rules2/example.c)
target_link_libraries(found rules2::rules2)
X
    expect 0 "Build files" cmake -S found -B found/build -DCMAKE_PREFIX_PATH="$work/cmake"
    expect 0 "Built target found" cmake --build found/build
    expect 0 "after   10 steps" found/build/found cpu 10
    PKG_CONFIG_PATH=$(dirname "$(find cmake -name rules2.pc)")
    flags=$(PKG_CONFIG_PATH=$PKG_CONFIG_PATH pkg-config --static --cflags --libs rules2)
    expect 0 "" eval "${CC:-cc} rules2/example.c -o by-pc $flags"
    expect 0 "after   10 steps" ./by-pc cpu 10
else
    echo "skipped: packages with CMake (no cmake)"
fi
expect 0 "1 rule" "$optc" ship sgd -o rules2
expect 0 "adafactor: equal on cpu" ./compare cpu f32 adafactor adafactor ''
expect 0 "cut: equal on cpu" ./compare cpu f32 cut ./cut.lua ''
expect 0 "cut: equal on cpu" env OPTC_BLAS=none RULES_BLAS=none ./compare cpu f32 cut ./cut.lua ''
# states in block codes, and one state by name
mkdir coded
expect 0 "1 rule" "$optc" ship adamw+ema --types state=q8,ema.avg=bf16 -o coded/rules
expect 0 "types f32 f32 q8 ema.avg=bf16" cat coded/rules/manifest
expect 0 "optc ship 'adamw+ema' --types 'state=q8,ema.avg=bf16' -o rules" cat coded/rules/manifest
expect 0 "" ${CC:-cc} -x c++ -std=gnu++17 -fopenmp -Wall -Wextra -Wpedantic -Werror \
    -DRULES_NO_CLONES -fsyntax-only coded/rules/rules.c
expect 0 "" $quick -std=gnu11 -Wall -Wextra -Wpedantic -Werror -DRULES_NO_CLONES -Icoded/rules \
    -I"$top/runtime" "$top/tests/ship/compare.c" coded/rules/rules.c -Wl,-rpath,"$work" "$lib" -lm \
    -ldl -o coded/compare
expect 0 "adamw_ema: equal on cpu" coded/compare cpu f32+state=q8,ema.avg=bf16 adamw_ema adamw ema
expect 1 "adamw_ema" coded/compare cpu f32 adamw_ema adamw ema
expect 0 "cpu: " rules/example best 3
export LD_LIBRARY_PATH="$top/$BUILD/fake/versioned" FAKE_CUDA=works
expect 0 "cpu: " rules/example best 3
expect 1 "has no GPU code: it was made without --arch" rules/example cuda 3
check "a package without GPU code contains the runtime of GPUs" \
    '! grep -E "==== runtime/core/(gpu/|matrix/(gpu_|cu[a-z])).*\.c ====" rules/rules.c'
unset LD_LIBRARY_PATH FAKE_CUDA
expect 1 "rules_open: " rules/example cuda 3           # no driver here, or no code for its GPU

# packages need no kernel headers, and without OpenMP no system calls
check "a package wants linux/futex.h" \
    '! ${CC:-cc} -fopenmp -DRULES_NO_CLONES -M rules/rules.c | grep futex'
check "a package wants syscall.h" '! ${CC:-cc} -DRULES_NO_CLONES -M rules/rules.c | grep syscall'

# two packages and the library in one program share OpenMP's threads and the state of its team
source=rules2/rules2.c
[ -n "${OPTC_ALL:-}" ] || { sh "$top/tests/parts/quick_runtime.sh" $source > quick.c
    source=quick.c; }
expect 0 "" ${CC:-cc} -O0 -Wall -Werror -fopenmp -DRULES2_NO_CLONES -Irules -Irules2 \
    -I"$top/runtime" "$top/tests/ship/forked.c" rules/rules.o $source \
    -Wl,-rpath,"$work" "$lib" -lm -ldl -o forked
expect 0 "all step in a child" ./forked

# -Ofast is refused with a hint, and the hint works (tests/parts/ship.sh compiles packages at -O3)
expect 1 "Compile this file with -O3, or add -fno-fast-math" ${CC:-cc} -Ofast \
    -c rules2/rules2.c -o fast.o
expect 0 "" ${CC:-cc} -Ofast -fno-fast-math -DRULES2_NO_CLONES -fsyntax-only rules2/rules2.c
expect 0 "" ${CC:-cc} -O3 -DRULES2_NO_CLONES -fsyntax-only rules2/rules2.c

# the command in the manifest makes the package again, also with folders of specs and quotes in
# names
mkdir "it's"
printf 'return optimizer { name = "mine", hyper = { lr = 0.1 },'\
' step = function() p = p - lr * g * 3 end }\n' \
    > "it's/mine.lua"
expect 0 "mine" "$optc" ship mine --path "it's:none" -o own
line=$(sed -n 's/^command //p' own/manifest)
check "its line: $line" '[ "$line" = "optc ship mine --path '"'it'\\''s:none'"' -o own" ]'
expect 0 "mine" "$optc" ship mine --path "./it's" -o plain
check "its header's line" 'grep -q "Made by: optc ship mine --path .* -o plain$" plain/plain.h'
mv own first
eval "\"\$optc\" ${line#optc }" > /dev/null 2>&1
expect 0 "" diff -r first own
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
