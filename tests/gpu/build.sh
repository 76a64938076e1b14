#!/bin/sh
# Builds on a machine where nothing can be installed, from Lua and Check unpacked under DEPS, and runs make with the
# rest of the arguments.
#   DEPS=/path/to/deps sh tests/gpu/build.sh test-gpu bench-gpu
set -eu
l=$DEPS/usr/lib/x86_64-linux-gnu
exec make -j"$(nproc)" LUA_CFLAGS="-I$DEPS/usr/include/lua5.4 -I$DEPS/usr/include/x86_64-linux-gnu" \
    LUA_LIBS="$l/liblua5.4.so.0 -Wl,-rpath,$l -lm -ldl" \
    CHECK_CFLAGS="-I$DEPS/usr/include" CHECK_LIBS="$l/libcheck_pic.a $l/libsubunit.a -lrt -lm -lpthread" "$@"
