#!/bin/sh
# Installs what building and testing needs and this machine lacks, through apt. Does nothing where
# all is there. LUA, CHECK, BLAS: not empty where the caller gives its own libraries.
set -eu
# try HEADER FLAGS LIBRARIES
try() {
    printf '#include <%s>\nint main(void) { return 0; }\n' "$1" |
        ${CC:-cc} $2 -x c - -o /dev/null ${3:-} 2>/dev/null
}
flags() { "${PKG:-pkg-config}" "$1" "$2" 2>/dev/null || true; }

want=
# gcc comes with OpenMP. Debian packages that of clang by clang's version.
if ! command -v ${CC:-cc} >/dev/null 2>&1; then
    want="$want gcc libc6-dev"
elif ! try omp.h -fopenmp; then
    clang=$(${CC:-cc} --version 2>/dev/null | sed -n 's/.*clang version \([0-9]*\).*/\1/p')
    [ -n "$clang" ] && want="$want libomp-$clang-dev" || want="$want gcc"
fi
command -v "${PKG:-pkg-config}" >/dev/null 2>&1 || want="$want pkg-config"
[ -n "${LUA:-}" ] || try lua.h "$(flags --cflags lua5.4) -I/usr/include/lua5.4" "-llua5.4 -lm" ||
    want="$want liblua5.4-dev"
[ -n "${CHECK:-}" ] || try check.h "$(flags --cflags check)" "$(flags --libs check)" ||
    want="$want check"
[ -n "${BLAS:-}" ] || try cblas.h "$(flags --cflags openblas)" "$(flags \
    --libs openblas) -lopenblas" ||
    want="$want libopenblas-dev"
[ -n "${BLAS:-}" ] || try lapacke.h "" "-llapacke" || want="$want liblapacke-dev"
[ -n "$want" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "optc needs$want (Debian's names), and this machine has no apt-get: install them, or give \
make" \
         "LUA_CFLAGS, LUA_LIBS, CHECK_CFLAGS, CHECK_LIBS and BLAS_LIBS" >&2
    exit 1
fi
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
if [ -n "$sudo" ] && ! command -v sudo >/dev/null 2>&1; then
    echo "optc needs$want: become root or install sudo, then try again" >&2
    exit 1
fi
echo "installing:$want"
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $want >/dev/null
