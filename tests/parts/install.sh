#!/bin/sh
# Installs into an empty folder and uses the result as a newcomer would: pkg-config, a C and a C++
# program, the command.
set -eu
to=$(mktemp -d) apart=$(mktemp -d)
trap 'rm -rf "$to" "$apart"' EXIT
top=$PWD
${MAKE:-make} --no-print-directory -s install BUILD="$BUILD" PREFIX="$to" >/dev/null
# another folder: everything that is installed goes again, and nothing else
${MAKE:-make} --no-print-directory -s install BUILD="$BUILD" PREFIX="$apart" > /dev/null
for file in share/man/man1/optc.1 share/bash-completion/completions/optc bin/optc; do
    [ -s "$apart/$file" ] || { echo "not installed: $file"; exit 1; }
done
: > "$apart/include/mine.h"
${MAKE:-make} --no-print-directory -s uninstall PREFIX="$apart" > /dev/null
left=$(cd "$apart" && find . -type f -o -type l)
[ "$left" = ./include/mine.h ] || { echo "after uninstall there are: $left"; exit 1; }
cat > "$to/use.c" <<'X'
#include <optc.h>
#include <stdio.h>
int main(void)
{
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    float p[6] = {1, 2, 3, 4, 5, 6}, g[6] = {1, 1, 1, 1, 1, 1};
    int64_t shape[2] = {2, 3};
    optc_rule_options ro = {};
    optc_tensor t = {};
    optc_group all = {};
    ro.spec = "adamw";
    t.param = p;
    t.grad = g;
    t.rank = 2;
    t.shape = shape;
    all.tensors = &t;
    all.ntensors = 1;
    if (optc_open(NULL, &e) || optc_compile(e, &ro, &r) || optc_bind(r, &all, 1, &b) ||
        optc_step(b)) {
        fprintf(stderr, "%s\n", optc_message());
        return 1;
    }
    printf("%s: %s: %g\n", optc_rule_name(r), optc_rule_path(r), p[0]);
    return optc_unbind(b) || optc_release(r) || optc_close(e);
}
X
# where clang is alone, setting up installs its OpenMP
mkdir "$to/bare"
cat > "$to/bare/cc" <<'X'
#!/bin/sh
case " $* " in
*" --version "*) echo "Debian clang version 14.0.6" ;; *" -fopenmp "*) exit 1 ;; *) exit 0 ;;
esac
X
printf '#!/bin/sh\nexit 0\n' > "$to/bare/apt-get"
printf '#!/bin/sh\nexec "$@"\n' > "$to/bare/sudo"
chmod +x "$to/bare/"*
said=$(PATH="$to/bare:$PATH" CC=cc PKG=true LUA=1 CHECK=1 BLAS=1 sh tools/setup.sh)
[ "$said" = "installing: libomp-14-dev" ] || { echo "setup with clang alone: $said"; exit 1; }
export PKG_CONFIG_PATH="$to/lib/pkgconfig"
flags=$(pkg-config --cflags --libs optc)
static=$(pkg-config --static --cflags --libs optc | sed "s|-loptc|$to/lib/liboptc.a|")
${CC:-cc} -Wall -Wextra "$to/use.c" -o "$to/dynamic" $flags -Wl,-rpath,"$to/lib"
${CC:-cc} "$to/use.c" -o "$to/static" $static
"$to/dynamic"
"$to/static"
if command -v g++ >/dev/null 2>&1; then
    g++ -std=c++17 -Wall -Wextra -Wpedantic -x c++ "$to/use.c" -x none -o "$to/plus" $flags \
        -Wl,-rpath,"$to/lib"
    "$to/plus"
else
    echo "skipped: the header in C++ (no g++)"
    [ -z "${CI:-}" ] || exit 1
fi
# CMake
if command -v cmake >/dev/null 2>&1; then
    mkdir "$to/cmade"
    cat > "$to/cmade/CMakeLists.txt" <<'X'
cmake_minimum_required(VERSION 3.10)
project(use C)
find_package(optc 0.1 REQUIRED)
add_executable(use ../use.c)
target_link_libraries(use optc::optc)
add_executable(alone ../use.c)
target_link_libraries(alone optc::static)
X
    cmake -S "$to/cmade" -B "$to/cmade/build" -DCMAKE_PREFIX_PATH="$to" >/dev/null
    cmake --build "$to/cmade/build" >/dev/null
    "$to/cmade/build/use"
    "$to/cmade/build/alone"
    for wanted in 0.0 0.2 1; do
        sed "s/optc 0.1/optc $wanted/" "$to/cmade/CMakeLists.txt" > "$to/CMakeLists.txt"
        if cmake -S "$to" -B "$to/other" -DCMAKE_PREFIX_PATH="$to" >/dev/null 2>&1; then
            echo "version $wanted was accepted"; exit 1
        fi
    done
else
    echo "skipped: find_package (no cmake)"
fi
sh tests/parts/examples.sh "$to"
# programs can also be linked against the build folder
${CC:-cc} "$to/use.c" -Iruntime -L"$BUILD" -loptc -Wl,-rpath,"$top/$BUILD" -o "$to/built"
"$to/built"
# the command of `make demo` has a few rules compiled in and compiles the others
${MAKE:-make} --no-print-directory -s BUILD="$BUILD" "$BUILD/demo/optc"
"$BUILD/demo/optc" doctor | grep -q ' 5 compiled in$'
"$BUILD/demo/optc" bench adamw --size 4K --rounds 1 | grep -q 'built in'
"$BUILD/demo/optc" check lamb >/dev/null
# into a folder with a space in its name; nothing is written next to it
${MAKE:-make} --no-print-directory -s install BUILD="$BUILD" PREFIX="$to/a place" >/dev/null
flags=$(PKG_CONFIG_PATH="$to/a place/lib/pkgconfig" pkg-config --cflags --libs optc)
eval "${CC:-cc} '$to/use.c' -o '$to/spaced' $flags"
LD_LIBRARY_PATH="$to/a place/lib" "$to/spaced"
[ ! -e "$to/a" ]
cd "$to"
bin/optc check adamw >/dev/null
bin/optc check share/optc/specs/lamb.lua >/dev/null
for page in README COOKBOOK EXAMPLES MATRICES; do [ -s share/optc/specs/$page.md ]; done
# only public symbols are exported
extra=$(nm -D --defined-only lib/liboptc.so | awk '{print $3}' | grep -v '^optc_' || true)
[ -z "$extra" ] || { echo "exported by mistake: $extra"; exit 1; }
echo "install ok"
