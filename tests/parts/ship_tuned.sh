#!/bin/sh
# Tests packages with tuned launches: launches measured on a GPU are built into the code for its
# architecture. Bad files are refused with file and line.
set -u
. tests/parts/ship_checks.sh

set -- $("$optc" explain sgd --hashes)
at="threads=512 vector=8 items=1 blocks=0 load=0 store=1 grid=4"
cat > h200.tune <<X
optc-tune 1
device NVIDIA H200 | units 132 | driver 580
$2 f32,f32,f32 $1 2^28 $at ms=1 model=2 n=9 # sgd
X
OPTC_TUNE="$work/h200.tune" expect 0 "2 architectures" "$optc" ship sgd \
    --arch sm_80,sm_90 -o measured
check "a measured launch is not in the package, or in another architecture's" \
    'grep -q "launch sm_90 .*:512,8,1,0,0,1,4" measured/manifest &&
    ! grep -q "launch sm_80 .*:512,8" measured/manifest'
# A result for 2^24 elements is not used: a package's launches are for large tensors.
sed 's/ 2^28 / 2^24 /' h200.tune > small.tune
OPTC_TUNE="$work/small.tune" expect 0 "1 architecture" "$optc" ship sgd --arch sm_90 -o elsewhere
check "a result for small tensors was shipped" 'grep -q "launch sm_90" elsewhere/manifest &&
    ! grep -q ":512,2" elsewhere/manifest'
# Results of several GPUs of one architecture: the largest size is used, then the greatest gain,
# then the first. The output names the GPU that was used and those that were not.
result() {
    echo "device $1 | units 132 | driver 580"
    echo "map f32,f32,f32 $stage 2^$2 threads=$3 vector=4 items=1 blocks=0 load=0 store=1 grid=4" \
        "ms=1 model=$4 n=9 # sgd"
}
stage=$1
tune() { { echo optc-tune 1; cat; } > "$1"; }
{ result "NVIDIA H100 PCIe" 28 256 1.1; result "NVIDIA H200" 28 512 1.2
    result "NVIDIA H20" 28 128 1.2; } |
    tune gain.tune
{ result "NVIDIA H100 PCIe" 28 256 3; result "NVIDIA H200" 30 512 1.2
    result "NVIDIA GeForce RTX 3070" 28 256 2
  result "NVIDIA Z9" 28 256 2; result "AMD Z10" 24 256 2; } | tune size.tune
for t in gain:128:"NVIDIA H20" size:512:"NVIDIA H200"; do
    gpu=${t##*:} t=${t%:*}
    for dir in once twice; do
        OPTC_TUNE="$work/${t%:*}.tune" expect 0 "stages launched as measured on $gpu" "$optc" ship \
            sgd --arch sm_90 --name sgd -o $dir
    done
    said=$out
    check "of the results in ${t%:*}.tune the wrong one" \
        'grep -q "launch sm_90 .*:${t#*:},4,1,0,0,1,4" once/manifest && diff -r once twice'
    rm -r twice
done
check "what was left out: $said" '[ "$(printf "%s\n" "$said" | grep -c "left out")" = 2 ] &&
    printf "%s\n" "$said" | grep -q "results of NVIDIA GeForce RTX 3070, which is sm_86$" &&
    printf "%s\n" "$said" | grep -q "NVIDIA Z9, whose architecture is not known"'
stage=$(printf %032d 0)
result "NVIDIA H200" 28 512 2 | tune none.tune
OPTC_TUNE="$work/none.tune" expect 0 "no tuned launches are used" "$optc" ship sgd \
    --arch sm_90 -o plain
expect 0 "1 rule" "$optc" ship sgd --arch sm_90 -o plain
check "words on tuning where there was none: $out" \
    '! printf "%s" "$out" | grep -q "measured\|left out"'
# names of GPUs
stage=$1
cat > names <<'X'
Tesla V100-SXM2-16GB:70
NVIDIA TITAN V:70
Xavier:72
Tesla T4:75
NVIDIA T1000 8GB:75
Quadro RTX 4000:75
NVIDIA TITAN RTX:75
NVIDIA GeForce GTX 1660 Ti:75
NVIDIA GeForce RTX 2080 Ti:75
A100-SXM4-40GB:80
NVIDIA A100 80GB PCIe MIG 1g.10gb:80
NVIDIA A30:80
NVIDIA GeForce RTX 2050:86
NVIDIA GeForce RTX 3070 Laptop GPU:86
NVIDIA RTX A5000:86
NVIDIA RTX A500 Laptop GPU:86
NVIDIA A2:86
NVIDIA A10G:86
NVIDIA A16:86
NVIDIA A40-48Q:86
Orin (nvgpu):87
NVIDIA L4:89
NVIDIA L20:89
NVIDIA L40S:89
NVIDIA GeForce RTX 4070 SUPER:89
NVIDIA RTX 4000 SFF Ada Generation:89
NVIDIA RTX 2000 Ada Generation Laptop GPU:89
NVIDIA B200:100
NVIDIA GB300:103
NVIDIA Thor:110
NVIDIA GeForce RTX 5070:120
NVIDIA RTX PRO 6000 Blackwell Workstation Edition:120
NVIDIA GB10:121
X
while IFS=: read -r gpu arch; do result "$gpu" 28 256 2; done < names | tune names.tune
OPTC_TUNE="$work/names.tune" "$optc" ship sgd --arch sm_90 -o named 2>&1 |
    sed -n 's/.*results of \(.*\), which is sm_/\1:/p' | LC_ALL=C sort > names.got
LC_ALL=C sort names > names.want
expect 0 "" diff names.want names.got
{ result "NVIDIA GH200 480GB" 28 512 2; result "NVIDIA H20-3e" 28 256 3; } | tune names.tune
OPTC_TUNE="$work/names.tune" expect 0 "measured on NVIDIA H20-3e" "$optc" ship sgd \
    --arch sm_90 -o named
sed 's/threads=512/threads=513/' h200.tune > bad.tune
OPTC_TUNE="$work/bad.tune" expect 1 "bad.tune:3: threads=513" "$optc" ship sgd --arch sm_90 \
    -o unmeasured
check "a package was made in spite of it" '[ ! -e unmeasured ]'

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
