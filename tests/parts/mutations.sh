#!/bin/sh
# Breaks the kernel for symmetric products (templates/symmetric_cuda.txt) in one place at a time. The emulated GPU's
# case square-matrices must fail with each. Run by `make test-all`; takes two minutes.
#   BUILD              the build folder
# `mutations.sh NAME…` tries only these.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here=$PWD
. tests/parts/emulated.sh
export OPTC_TEST_SMALL=1 OPTC_TEST_CACHE="$work" OPTC_CFLAGS=-O0 work real="${CXX:-g++}"

# NAME, what is replaced and by what, as a sed command
cat > "$work/mutations" <<'X'
release_too_early    s/arrive(r.empty + 8 \* last)/arrive(r.empty + 8 * r.slot)/
stores_not_awaited   s/optc_box_wait_read();/;/
no_sync_before_put   /optc_box_wait_read/{n;s/optc_group_sync(1 + group);//}
no_sync_after_put    /optc_symmetric_put(at, pair)/{n;n;s/optc_group_sync(1 + group);//}
no_fence_of_results  /optc_symmetric_put(at, pair)/{n;s/optc_box_fence();//}
no_fence_of_slot     /the memory unit writes there next/{n;s/optc_box_fence();//}
no_syncwarp          s/__syncwarp();//
sums_not_awaited     s/optc_wgmma_wait_before();//
last_not_awaited     s/optc_wgmma_wait<NARROW ? 64 : 128>(sum);//
no_fence_of_sums     s/optc_wgmma_fence();//
stores_uncommitted   s/optc_box_commit();/;/
wrong_bytes          s/OPTC_SLOT_B + boxes \* 8192)/OPTC_SLOT_B + 4 * 8192)/
wrong_arrivals       s/(r.empty + 8 \* i, 8)/(r.empty + 8 * i, 7)/
wrong_phase          s/slot = 0, phase ^= 1/slot = 0/
slot_not_awaited     s/optc_bar_wait(r.empty + 8 \* r.slot, r.phase);//
addend_not_awaited   /if (x.d)/{n;s/optc_bar_wait(r.full + 8 \* r.slot, r.phase)//}
tile_in_one_slot     s/number\[r.slot\] = nth/number[0] = nth/
counter_not_reset    s/(unsigned)all + gridDim.x - 1/(unsigned)all + gridDim.x/
odd_row_of_tiles     s/(rows % 2) \* (pairs + 1)/(rows % 2) * pairs/
wrong_diagonal       s/at == 1 ?/at == 0 ?/
wrong_permutation    s/(piece ^ (row & 7))/(piece ^ (row \& 3))/
wrong_operand        s/ALONG ? 8192 >> 4/ALONG ? 4096 >> 4/
too_many_slots       s/OPTC_SLOTS = 3/OPTC_SLOTS = 4/
X
cat > "$work/cxx" <<'X'
#!/bin/sh
for file; do
    case $file in */k.cc) ! grep -q 'struct optc_symmetric_task' "$file" || {
        sed "$mutation" "$file" > "$file.new"
        ! cmp -s "$file" "$file.new" || : > "$work/same"
        mv "$file.new" "$file"
    } ;; esac
done
exec "$real" "$@"
X
chmod +x "$work/cxx"
fails() { ! CXX="$work/cxx" mutation=$1 CK_RUN_CASE=square-matrices "$BUILD/gpu-test" > "$work/said" 2>&1; }

failed=0 tried=0
! fails b || { cat "$work/said"; echo "the case fails without a mutation"; exit 1; }
while read -r name mutation; do
    case " $* " in "  " | *" $name "*) ;; *) continue ;; esac
    tried=$((tried + 1))
    rm -f "$work/same"
    fails "$mutation" && grep -q 'hopper_halves\|emulated GPU:' "$work/said" ||
        { failed=$((failed + 1)); echo "not found: $name"; }
    [ ! -e "$work/same" ] || { failed=$((failed + 1)); echo "changes nothing: $name"; }
done < "$work/mutations"
echo "$((tried - failed)) of $tried broken kernels are found"
[ $failed = 0 ] && [ $tried -gt 0 ]
