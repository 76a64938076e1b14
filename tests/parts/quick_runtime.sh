#!/bin/sh
# quick_runtime.sh FILE: prints a package's source in which the runtime code outside of loops is not
# optimized. For tests of stages and of flags: optimizing that code takes most of the compiler's
# time, and it computes no result.
sed -e 's/^#pragma GCC optimize("O1", /#pragma GCC optimize("O0", /' \
    -e '/^\/\* Runtime code that runs once per step/i #ifdef __clang__\n'\
'#pragma clang optimize off\n#endif' "$1"
