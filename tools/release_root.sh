#!/bin/sh
# Unpacks libraries and Python of another architecture into a folder, for a cross-built wheel
# (tools/RELEASING.md):
#   sh tools/release_root.sh FOLDER [ARCHITECTURE]      (Debian's name of it; default arm64)
# It needs python3, xz and dpkg-deb, no root and no container. The files are those of Debian
# bookworm: the wheel needs its glibc or an older one. Checksums come from the mirror's index, whose
# signature is not checked.
#   MIRROR   where packages are: the https address of a Debian mirror, up to the folder that
#            contains dists and pool
set -eu
root=${1:?sh tools/release_root.sh FOLDER [ARCHITECTURE]} arch=${2:-arm64}
mirror=${MIRROR:?the https address of a Debian mirror} release=bookworm
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
fetch() { python3 -c 'import shutil, sys, urllib.request as u
with u.urlopen(sys.argv[1]) as f, open(sys.argv[2], "wb") as g: shutil.copyfileobj(f, g)' \
    "$mirror/$1" "$work/$2"; }
fetch "dists/$release/main/binary-$arch/Packages.xz" index.xz
xz -d "$work/index.xz"
# Python is python3-minimal's: its version follows from the release
version=$(awk '/^Package: /{ p = $2 } /^(Pre-)?Depends: / && p == "python3-minimal" {
    print }' "$work/index" |
    grep -o 'python3\.[0-9]*-minimal' | head -1)
version=${version%-minimal}
[ -n "$version" ] || { echo "$mirror has no python3-minimal for $release, $arch"; exit 1; }
mkdir -p "$root"
for package in libc6 libgcc-s1 libgomp1 liblua5.4-0 liblua5.4-dev "$version-minimal" \
    "lib$version-minimal" "lib$version-stdlib" zlib1g libexpat1 libffi8 libssl3 libbz2-1.0 \
    liblzma5 libuuid1 libcrypt1; do
    # FILE SHA256 of the newest version
    line=$(awk -v want="$package" '/^Package: /{ p = $2 } /^Filename: / && p == want { f = $2 }
        /^SHA256: / && p == want { s = $2 } END { print f, s }' "$work/index")
    [ "$line" != " " ] || { echo "$package is not in $release for $arch"; exit 1; }
    fetch "${line% *}" package.deb
    echo "${line#* }  $work/package.deb" | sha256sum -c --status || {
        echo "$package: wrong checksum"; exit 1; }
    dpkg-deb -x "$work/package.deb" "$root"
done
echo "$root: $release, $arch, $version"
