/* The head, the style and the texts of pages and pictures. */
#include "tools/page/page.h"

#include <math.h>
#include <string.h>
#include <strings.h>

void html_text(Buf *b, const char *s)
{
    for (; *s; s++)
        switch (*s) {
        case '<': buf_puts(b, "&lt;"); break;
        case '>': buf_puts(b, "&gt;"); break;
        case '&': buf_puts(b, "&amp;"); break;
        case '"': buf_puts(b, "&quot;"); break;
        default:
            if ((unsigned char)*s >= 0x20 || *s == '\n' || *s == '\t')
                buf_add(b, s, 1);
        }
}

void html_number(Buf *b, double x)
{
    if (isfinite(x))
        buf_printf(b, "%.4g", x);
    else
        buf_puts(b, "–");
}

void html_time(Buf *b, double seconds)
{
    char s[32];
    buf_puts(b, isfinite(seconds) ? cli_time(s, seconds) : "–");
}

/* Colours after Okabe and Ito 2008, which colour-blind readers can tell apart; later series repeat
 * them dashed. */
static const char palette[] = ":root{--bg:#fff;--fg:#1b1f24;--dim:#667;--line:#d8dce2;--card:#"
                              "f6f7f9;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;"
                              "--c3:#b0578d;--c4:#8a6d00;--c5:#3a9bd0;--c6:#444;--c7:#a33}\n"
                              "@media(prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e6e8eb;--"
                              "dim:#9aa3ad;--line:#333a42;--card:#1c2127;"
                              "--c0:#56b4e9;--c1:#ff8c42;--c2:#2fc79a;--c3:#e08cc0;--c4:#f0e442;--"
                              "c5:#8cc8ff;--c6:#bbb;--c7:#ff7b7b}}\n";
static const char plot_style[] =
    ".tick{font:13px system-ui,sans-serif;fill:var(--dim)}.grid{stroke:var(--line);fill:none}"
    ".target{stroke:var(--fg);stroke-dasharray:4 4;fill:none}\n"
    "polyline{fill:none;stroke-linejoin:round}.median{stroke-width:2.5}.seed{stroke-width:.8;"
    "opacity:.35}"
    ".sweep{stroke-width:1;opacity:.6}.cross{font:bold 16px "
    "sans-serif;stroke:none}.hollow{fill:var(--card)}\n"
    ".roof{stroke:var(--fg);stroke-width:1.5;fill:none}.lower{stroke:var(--dim);fill:none}"
    ".stage{fill-opacity:.55}.label{font:12px system-ui,sans-serif;fill:var(--fg)}"
    ".name{font:14px system-ui,sans-serif;fill:var(--fg)}.head{font:bold 16px "
    "system-ui,sans-serif;fill:var(--fg)}\n";
static const char page_style[] =
    "*{box-sizing:border-box}body{margin:0 "
    "auto;padding:1rem;max-width:64rem;background:var(--bg);color:var(--fg);"
    "font:16px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.5rem}h2{margin:2rem 0 .3rem;font-size:1.2rem}p{margin:.4rem "
    "0}.dim,.empty{color:var(--dim)}\n"
    ".plots{display:grid;margin:.8rem "
    "0;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));gap:1rem}\n"
    "figure{margin:0;padding:.5rem;background:var(--card);border-radius:.5rem;min-width:0}"
    "figcaption{font-size:.9rem;color:var(--dim)}\n"
    "svg{display:block;width:100%;height:auto}.wide{overflow-x:auto}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem}"
    "th,td{padding:.25rem .7rem .25rem 0;text-align:right;border-bottom:1px solid "
    "var(--line);white-space:nowrap}"
    "th:first-child,td:first-child{text-align:left}\n"
    "pre{overflow-x:auto;padding:.6rem;background:var(--card);border-radius:.5rem;font-size:.85rem}"
    "summary{cursor:pointer}code{overflow-wrap:anywhere}\n"
    ".key{display:inline-block;width:1rem;height:.25rem;margin-right:.4rem;vertical-align:middle}"
    "\n";

static void colours(Buf *b, int n)
{
    for (int i = 0; i < n; i++) {
        buf_printf(b,
                   ".r%d{stroke:var(--c%d)%s}.full.r%d,.cross.r%d{fill:var(--c%d)}.k%d{background:"
                   "var(--c%d)}",
                   i, i % 8, i < 8 ? "" : ";stroke-dasharray:6 3", i, i, i % 8, i, i % 8);
        if (i >= 8)
            buf_printf(b, "circle.r%d{stroke-dasharray:none}", i);
    }
    buf_puts(b, ".cross{stroke:none}\n");
}

void html_begin(Buf *b, const char *title, int series, const char *css)
{
    buf_puts(
        b,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
        "content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" "
        "content=\"light dark\">\n"
        "<title>");
    html_text(b, title);
    buf_puts(b, "</title>\n<style>\n");
    buf_puts(b, palette);
    buf_puts(b, page_style);
    buf_puts(b, plot_style);
    colours(b, series);
    buf_puts(b, css);
    buf_puts(b, "</style></head><body>\n");
}

void html_end(Buf *b) { buf_puts(b, "</body></html>\n"); }

/* The background is drawn too: a page may show the picture on a colour that does not fit the
 * reader's preference. */
void svg_begin(Buf *b, const char *title, int width, int height, int series)
{
    buf_printf(b,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
               "height=\"%d\" "
               "role=\"img\">\n<title>",
               width, height, width, height);
    html_text(b, title);
    buf_puts(b, "</title>\n<style>\n");
    buf_puts(b, palette);
    buf_puts(b, plot_style);
    colours(b, series);
    buf_printf(b, "</style>\n<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"var(--card)\"/>\n",
               width, height);
}

void svg_end(Buf *b) { buf_puts(b, "</svg>\n"); }

bool page_is_svg(const char *path)
{
    size_t n = path ? strlen(path) : 0;
    return n >= 4 && !strcasecmp(path + n - 4, ".svg");
}
