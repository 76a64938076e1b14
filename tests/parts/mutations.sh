#!/bin/sh
# Breaks the kernel for symmetric products (templates/symmetric_cuda.txt) in one place at a time.
# The emulated GPU's case square-matrices must fail with each. Run by `make test-all`; takes five
# minutes.
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
release_too_early    s/arrive_cluster(r.empty + 8 \* last)/arrive_cluster(r.empty + 8 * r.slot)/
stores_not_awaited   s/optc_box_wait_read();/;/
place_not_awaited    s/optc_bar_wait(p.is_free(), p.phase() ^ 1);//
square_not_awaited   s/optc_bar_wait(p.is_ready(), p.phase());//
no_sync_before_blend /y.left == 1) {/{n;s/optc_group_sync(1 + group);//}
no_syncwarp          s/__syncwarp();//
no_fence             s/^ *optc_box_fence();//
sums_not_awaited     s/optc_wgmma_wait_before();//
last_not_awaited     s/optc_wgmma_wait<COLS \/ 2>(sum);//
no_fence_of_sums     s/optc_wgmma_fence();//
stores_uncommitted   s/optc_box_commit();/;/
wrong_bytes          s/optc_bar_expect(bar, OPTC_SLOT_BYTES)/optc_bar_expect(bar, OPTC_SLOT_BYTES - 8192)/
wrong_arrivals       s/8 \* OPTC_CLUSTER)/4 * OPTC_CLUSTER)/
wrong_phase          s/slot = 0, phase ^= 1/slot = 0/
slot_not_awaited     s/optc_bar_wait(r.empty + 8 \* r.slot, r.phase);//
addend_not_awaited   /if (ADDEND \&\& i % 2 == 0)/{n;s/optc_bar_wait(r.full + 8 \* r.slot, r.phase)//}
sums_not_cleared     s/sum, a, b, from | i)/sum, a, b, 1)/
half_of_columns      s/4 \/ OPTC_CLUSTER/2 \/ OPTC_CLUSTER/
too_few_columns      s/cols == 192/cols > 192/
first_place_only     s/at + nth % 2 \* (2 \* OPTC_BOX_BYTES)/at/
addend_of_one_half   s/(i % 2 \* 2 + group) \* OPTC_BOX_BYTES/group * OPTC_BOX_BYTES/
above_not_mirrored   s/ | (other\[j\] & mask)//
other_half_mirrored  s/optc_symmetric_mirror(p.here(), thread);//
odd_row_of_tiles     s/((unsigned)n + 255) \/ 256/((unsigned)n + 511) \/ 512/
wrong_diagonal       s/at == 1 ?/at == 0 ?/
wrong_permutation    s/(piece ^ (row & 7))/(piece ^ (row \& 3))/
wrong_operand        s/ALONG ? 8192 >> 4/ALONG ? 4096 >> 4/
too_many_slots       s/OPTC_SLOTS = 3/OPTC_SLOTS = 4/
no_cluster_begin     /optc_bars_ready();/{n;n;s/optc_cluster_sync();//}
block_begin          /optc_bars_ready();/{n;n;s/optc_cluster_sync();/__syncthreads();/}
no_cluster_end       /optc_symmetric_results<K, false>/{n;n;s/optc_cluster_sync();//}
own_releases         s/8 \* OPTC_CLUSTER)/8)/;s/optc_bar_arrive_cluster(/optc_bar_arrive(/
own_release          s/arrive_cluster(r.empty + 8 \* last)/arrive(r.empty + 8 * last)/
own_addend           /all lanes have read/{n;n;s/arrive_cluster(/arrive(/}
own_loads            s/optc_box_multicast(/optc_box_load(/
own_bytes            s/optc_bar_expect(bar, OPTC_SLOT_BYTES)/optc_bar_expect(bar, OPTC_SLOT_BYTES - 2 * OPTC_BOX_BYTES)/
same_half            s/(int)blockIdx.x % OPTC_CLUSTER \* own/0/
addend_multicast     s/optc_box_load(r.here() + i/optc_box_multicast(r.here() + i/
same_row_of_tiles    s/below = tile % 2/below = 0/
early_square         s/i % 4 < 2 ? 4 : 1/i % 4 < 2 ? 3 : 1/
late_phase           s/return nth \/ 2 % 2/return nth % 2/
squares_of_few_terms s/ || t->k <= 192//
squares_of_narrow    s/ || cols < 256//
squares_at_end       s/y.left \&\& (nth >= all || /y.left \&\& nth < all \&\& (/
one_square_less      s/cols < 256 ? cols \/ 64 : 4/cols < 256 ? cols \/ 64 : 3/
no_next_square       s/= y.packed\[i + 16\]/= y.packed[i]/
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
fails() { ! CXX="$work/cxx" mutation=$1 CK_RUN_CASE=square-matrices "$BUILD/gpu-test" > \
    "$work/said" 2>&1; }

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
