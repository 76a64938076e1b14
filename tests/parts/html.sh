#!/bin/sh
# Opens the pages of a small race and of a small roofline in headless Chromium (Debian: chromium),
# at the width of a phone and of a desktop, in light and in dark: no errors in the console, no
# horizontal overflow, every plot drawn. Opens the pictures as images of a page, as GitHub does. Not
# part of `make test`.
#   OPTC      the command
#   SHOTS     a folder for screenshots (default: none)
set -u
failed=0 root=$PWD chrome=$(command -v chromium || command -v chromium-browser ||
    command -v google-chrome) ||
    { echo "no Chromium: apt-get install chromium"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
race() { "$OPTC" race adamw muon 'adamw+clip(1)' sgd --tasks spirals,embedding --steps 60 --trials \
    5 --seeds 6 "$@"; }
race -o race.html --json race.json > /dev/null &&
    "$OPTC" race --from race.json -o race.svg > /dev/null || exit 1
roofline() { "$OPTC" bench adamw muon --device cpu --threads 1 --rounds 2 --size 256K "$@"; }
roofline -o roofline.html > /dev/null && roofline -o roofline.svg > /dev/null || exit 1

# open WIDTH DARK FILE OPTIONS…: DARK 0 is dark
open() {
    width=$1 dark=$2 file=$3
    shift 3
    timeout 60 "$chrome" --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --user-data-dir="$work/profile" --blink-settings=preferredColorScheme="$dark" \
        --window-size="$width,2000" "$@" "file://$file"
}
title() { sed -n 's/.*<title>\(true[^<]*\|false[^<]*\)<.*/\1/p'; }

# measured PAGE WIDTH PLOTS: a copy that measures itself; the page has no scripts. Windows of
# Chromium are at least 500 pixels, so the width is that of the root element. The page has no rules
# that depend on the window's width.
measured() {
    cat "$1.html"
    cat <<HTML
<script>
document.documentElement.style.width = "$2px";
const plots = [...document.querySelectorAll("svg")];
const colour = getComputedStyle(document.body).backgroundColor;
document.title = [document.body.scrollWidth <= $2, document.body.offsetWidth <= $2, colour,
    plots.length >= $3,
                  plots.every(s => s.getBoundingClientRect().height > 100)].join(" ");
</script>
HTML
}
check_page() {
    for width in 390 1280; do
        measured "$1" $width "$2" > measured.html
        for dark in 0 1; do
            colour="rgb(20, 23, 27)"
            [ $dark = 0 ] || colour="rgb(255, 255, 255)"
            got=$(open $width $dark "$work/measured.html" --enable-logging=stderr --dump-dom \
                2> log | title)
            [ "$got" = "true true $colour true true" ] ||
                { failed=1; echo "$1, width $width, dark $dark: '$got'"; }
            ! grep -q "CONSOLE" log || { failed=1; grep CONSOLE log; }
            [ -z "${SHOTS:-}" ] ||
                open $width $dark "$work/$1.html" \
                --screenshot="$SHOTS/$1-$width-$dark.png" 2> /dev/null
        done
    done
}

# A picture is loaded as an image and has a size. Its colours are only in the screenshots.
check_picture() {
    cp "$1" picture.svg
    cat > picture.html <<'HTML'
<title>none</title><img id="i" src="picture.svg"><script>
document.getElementById("i").onload = e => { document.title = [e.target.naturalWidth > 400,
    e.target.naturalHeight > 300].join(" "); };
</script>
HTML
    got=$(open 1280 1 "$work/picture.html" --virtual-time-budget=3000 --dump-dom 2> /dev/null |
        title)
    [ "$got" = "true true" ] || { failed=1; echo "$1: '$got'"; }
    for dark in 0 1; do
        [ -z "${SHOTS:-}" ] ||
            open 1000 $dark "$work/picture.html" --screenshot="$SHOTS/$(basename \
            "$1")-$dark.png" 2> /dev/null
    done
}
check_page race 4
check_page roofline 1
for picture in "$work/race.svg" "$work/roofline.svg" "$root/tests/bench/race.svg" \
    "$root/tests/bench/roofline.svg"; do
    check_picture "$picture"
done
[ $failed = 0 ] && echo "the pages are drawn at 390 and 1280 pixels, in light and in dark, and the \
pictures as images"
exit $failed
