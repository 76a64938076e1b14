#!/bin/sh
# Builds on a machine where nothing can be installed: Lua and Check are unpacked in the folder DEPS.
# The arguments go to make.
#   DEPS=/path/to/deps sh tests/gpu/build.sh test-gpu bench-gpu
set -eu
DEPS=$(realpath "${DEPS:?names the folder with Lua and Check}")
l=$DEPS/usr/lib/x86_64-linux-gnu
[ -e "$l/liblua5.4.so.0" ] || { echo "DEPS=$DEPS: there is no $l/liblua5.4.so.0"; exit 2; }
exec make -j"$(nproc)" LUA_CFLAGS="-I$DEPS/usr/include/lua5.4 \
-I$DEPS/usr/include/x86_64-linux-gnu" \
    LUA_LIBS="$l/liblua5.4.so.0 -Wl,-rpath,$l -lm -ldl" \
    CHECK_CFLAGS="-I$DEPS/usr/include" CHECK_LIBS="$l/libcheck_pic.a $l/libsubunit.a -lrt -lm \
-lpthread" "$@"
