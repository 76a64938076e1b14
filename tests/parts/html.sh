#!/bin/sh
# Opens the page of a small race in headless Chromium (Debian: chromium), at the width of a phone and of a desktop, in
# light and in dark: no errors in the console, no horizontal overflow, every plot drawn. Not part of `make test`.
#   OPTC      the command
#   SHOTS     a folder for screenshots (default: none)
set -u
failed=0 chrome=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    { echo "no Chromium: apt-get install chromium"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
"$OPTC" race adamw muon 'adamw+clip(1)' sgd --tasks spirals,embedding --steps 60 --trials 5 --seeds 6 -o race.html \
    > /dev/null || exit 1
# measured WIDTH: a copy that measures itself; the page has no scripts. Windows of Chromium are at least 500 pixels,
# so the width is that of the root element. The page has no rules that depend on the window's width.
measured() {
    cat race.html
    cat <<END
<script>
document.documentElement.style.width = "$1px";
const plots = [...document.querySelectorAll("svg")], colour = getComputedStyle(document.body).backgroundColor;
document.title = [document.body.scrollWidth <= $1, document.body.offsetWidth <= $1, colour, plots.length >= 4,
                  plots.every(s => s.getBoundingClientRect().height > 100)].join(" ");
</script>
END
}
for width in 390 1280; do
    measured $width > measured.html
    for dark in 0 1; do                    # 0 is dark
        colour="rgb(20, 23, 27)"
        [ $dark = 0 ] || colour="rgb(255, 255, 255)"
        title=$(timeout 60 "$chrome" --headless --no-sandbox --disable-gpu --enable-logging=stderr \
            --user-data-dir="$work/profile" --blink-settings=preferredColorScheme=$dark --window-size=$width,2000 \
            --dump-dom "file://$work/measured.html" 2> log | sed -n 's/.*<title>\(true[^<]*\|false[^<]*\)<.*/\1/p')
        [ "$title" = "true true $colour true true" ] ||
            { failed=1; echo "width $width, dark $dark: '$title'"; }
        ! grep -q "CONSOLE" log || { failed=1; grep CONSOLE log; }
        [ -z "${SHOTS:-}" ] || timeout 60 "$chrome" --headless --no-sandbox --disable-gpu --hide-scrollbars \
            --user-data-dir="$work/profile" --blink-settings=preferredColorScheme=$dark --window-size=$width,2000 \
            --screenshot="$SHOTS/race-$width-$dark.png" "file://$work/race.html" 2> /dev/null
    done
done
[ $failed = 0 ] && echo "the page is drawn at 390 and 1280 pixels, in light and in dark"
exit $failed
