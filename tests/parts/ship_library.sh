#!/bin/sh
# Tests one package of the whole library, or without OPTC_ALL of every ninth rule: on the CPU, and
# found by the library in its package where there is no compiler. Rules with products take longest
# to compile: GPU code of one of them (OPTC_ALL: of all).
set -u
. tests/parts/ship_checks.sh

has_products() { grep -q '^  products = ' "$top/specs/$1.lua"; }
compare="-I$top/runtime $top/tests/ship/compare.c -Wl,-rpath,$work $lib"
unset OPTC_NO_CUDA RULES_NO_CUDA
export LD_LIBRARY_PATH="$fakes/versioned${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FAKE_CUDA=works \
    LOG_LIBRARY="$work/log-library" LOG_PACKAGE="$work/log-package"
names=$("$optc" list --names | grep -v /)
composed="sgd adam adamw lion"
mkdir all gpu
if [ -n "${OPTC_ALL:-}" ]; then
    expect 0 "lion_clip" "$optc" ship --all-specs --arch sm_90 -o all/rules
    on_gpu=$names
    cp -r all/rules gpu/
else
    # every ninth: a package of the whole library takes minutes
    names=$(echo "$names" | awk 'NR % 9 == 1')
    expect 0 "lion_clip" "$optc" ship $names $(printf '%s+clip(1) ' $composed) -o all/rules
    # every fourth of those without products, and one with: other tests compile all rules for GPUs
    on_gpu=$(n=0; for rule in $names; do case $rule in scion) ;; *) has_products $rule ||
        { n=$((n + 1)); [ $((n % 4)) = 1 ] && echo $rule; } ;; esac; done; echo scion)
    expect 0 "lion_clip" "$optc" ship $on_gpu $(printf '%s+clip(1) ' $composed) \
        --arch sm_90 -o gpu/rules
fi
for dir in all gpu; do                  # gpu: only its launches are tested
    # other levels: ship.sh, for a few rules
    [ $dir = all ] && [ -n "${OPTC_ALL:-}" ] && level=-O1 || level=-O0
    # clang compiles faster than gcc, but its code at -O0 runs slower: only for the launches
    cc=${CC:-cc}
    [ $dir = all ] || [ -n "${OPTC_ALL:-}" ] || ! command -v clang >/dev/null 2>&1 || cc=clang
    job $dir $cc $level -Wall -Wextra -Werror -DRULES_NO_CLONES -I$dir/rules $compare \
        $dir/rules/rules.c -lm -ldl -o compare-$dir
done
all_quiet
rm -f log-library log-package
for rule in $names $(printf '%s_clip ' $composed); do
    with=
    case $rule in *_clip) with='clip(1)' ;; esac
    expect 0 "$rule: equal on cpu" ./compare-all cpu f32 $rule ${rule%_clip} "$with"
done
for rule in $on_gpu $(printf '%s_clip ' $composed); do
    with=
    case $rule in *_clip) with='clip(1)' ;; esac
    # a step that has products only at some steps cannot be captured with a driver without
    # conditional nodes
    if has_products ${rule%_clip} && grep -q 'every(' "$top/specs/${rule%_clip}.lua"
        then continue; fi
    # products by optc's own kernels: on the fake GPU, which computes nothing, the behaviour of
    # cuBLAS is undefined
    expect 0 "$rule: from the package rules (sm_90)" env OPTC_CUBLAS="$work" RULES_CUBLAS="$work" \
        OPTC_NO_NVRTC=1 OPTC_CACHE_BASE="$work/gpu/rules" ./compare-gpu launches $rule \
        ${rule%_clip} "$with"
done
check "the launches of the library differ" 'cmp log-library log-package'

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
