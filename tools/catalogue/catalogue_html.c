/* The catalogue as one HTML page without scripts or other files, with a small curve of each rule
 * from a race. */
#include "tools/catalogue/catalogue.h"
#include "tools/page/page.h"
#include "tools/page/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 220, HEIGHT = 64 };             /* of a curve, in units of its drawing */

CatalogueCurve *catalogue_curves(Arena *a, const char *path, int *n)
{
    size_t len;
    FILE *f = fopen(path, "r");
    char *text = f ? cli_read_all(f, 1 << 24, &len) : NULL;
    CatalogueCurve *v = NULL;
    *n = 0;
    if (f)
        fclose(f);
    if (!text) {
        cli_error("list: cannot read '%s'", path);
        return NULL;
    }
    int lines = 1;
    for (const char *s = text; *s; s++)
        lines += *s == '\n';
    v = NEWS(a, CatalogueCurve, lines);
    for (char *s = text, *end; *s; s = end) {
        end = s + strcspn(s, "\n");
        end += *end == '\n' ? (*end = 0, 1) : 0;
        int bad;
        const Json *x = json_parse(a, arena_strdup(a, s), &bad), *loss = json_member(x, "loss");
        const char *const key[] = {"rule", "task", "command"};
        const char **to[] = {&v[*n].rule, &v[*n].task, &v[*n].command};
        bool ok = loss && loss->kind == JSON_LIST && json_member(x, "steps") &&
                  json_member(x, "every") && json_member(x, "target");
        for (int k = 0; k < 3 && ok; k++) {
            const Json *m = json_member(x, key[k]);
            ok = m && m->kind == JSON_STRING;
            *to[k] = ok ? m->text : "";
        }
        if (!ok) {
            cli_error("list: line %d of '%s' is no curve of optc race --curves", *n + 1, path);
            v = NULL;
            break;
        }
        CatalogueCurve *c = &v[(*n)++];
        c->steps = json_member(x, "steps")->number;
        c->every = json_member(x, "every")->number;
        c->target = json_member(x, "target")->number;
        c->loss = NEWS(a, double, loss->count + 1);
        for (const Json *m = loss->first; m; m = m->next)
            c->loss[c->npoint++] = m->number;
    }
    free(text);
    return v;
}

/* decimal logarithms of losses, one scale for all curves */
typedef struct Scale { double low, high; } Scale;

static Scale scale_of(const CatalogueCurve *v, int n)
{
    Scale s = {INFINITY, -INFINITY};
    for (int i = 0; i < n; i++) {
        s.low = fmin(s.low, log10(v[i].target));
        for (int k = 0; k < v[i].npoint; k++)
            if (v[i].loss[k] > 0 && isfinite(v[i].loss[k]))
                s.low = fmin(s.low, log10(v[i].loss[k]));
        s.high = v[i].npoint && v[i].loss[0] > 0 ? fmax(s.high, log10(v[i].loss[0])) : s.high;
    }
    return s;
}

static double height_of(Scale s, double loss)
{
    double x = (log10(fmax(loss, 1e-30)) - s.low) / fmax(s.high - s.low, 1e-9);
    return 2 + (HEIGHT - 4) * (1 - fmin(fmax(x, 0), 1));
}

static void put_curve(const CatalogueCurve *c, Scale s, Buf *b)
{
    buf_printf(b, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"loss of ", WIDTH, HEIGHT);
    html_text(b, c->rule);
    buf_printf(
        b, "\"><path class=\"target\" d=\"M0 %.1fH%d\"/><polyline class=\"median r0\" points=\"",
        height_of(s, c->target), WIDTH);
    for (int k = 0; k < c->npoint; k++)
        buf_printf(b, "%s%.1f,%.1f", k ? " " : "", WIDTH * fmin(k * c->every / c->steps, 1),
                   height_of(s, c->loss[k]));
    buf_puts(b, "\"/></svg>");
    if (c->npoint * c->every < c->steps)
        buf_puts(b, "<p class=\"dim\">diverged</p>");
    else
        buf_printf(b, "<p class=\"dim\">final loss %.2g</p>", c->loss[c->npoint - 1]);
}

static void put_fact(Buf *b, const char *key, const char *text)
{
    if (!*text)
        return;
    buf_printf(b, "<p><span class=\"dim\">%s:</span> ", key);
    html_text(b, text);
    buf_puts(b, "</p>");
}

static void put_entry(const CatalogueEntry *e, const CatalogueCurve *curve, int n, Scale s, Buf *b)
{
    const Fields *f = &e->fields;
    const CatalogueCurve *own = NULL;
    for (int i = 0; i < n && !own; i++)
        own = strcmp(curve[i].rule, f->name) ? NULL : &curve[i];
    buf_printf(b, "<figure id=\"%s\"><h3>%s</h3>", e->library, f->name);
    if (own)
        put_curve(own, s, b);
    else if (!catalogue_wrapper(e->library))
        buf_puts(b, "<p class=\"empty\">no curve: the race did not include this rule</p>");
    buf_puts(b, "<p>");
    html_text(b, f->doc);
    buf_puts(b, "</p>");
    put_fact(b, "use", f->use);
    put_fact(b, "paper", f->cite);
    put_fact(b, "compared with", f->follows);
    buf_printf(b, "<p class=\"dim\">%s%s bytes of state, %s moved, per parameter</p></figure>\n",
               catalogue_wrapper(e->library) ? "adds to sgd: " : "", e->states, e->moved);
}

void catalogue_html(const CatalogueEntry *v, int n, const CatalogueCurve *curve, int ncurve, Buf *b)
{
    LocaleMark was = locale_plain();
    Scale s = scale_of(curve, ncurve);
    html_begin(
        b, "optc: rules and wrappers", 1,
        "h3{margin:0;font-size:1.05rem}figure svg{max-width:20rem}pre{white-space:pre-wrap}\n");
    buf_puts(b, "<h1>Rules and wrappers</h1>\n<p>States are in f32; + means that further states "
                "are not elements. "
                "<code>optc show NAME</code> has more.</p>\n");
    if (ncurve) {
        buf_puts(b, "<p>Curves: median loss on the task ");
        html_text(b, curve[0].task);
        buf_printf(b,
                   " over %g steps, on one logarithmic scale from %.2g to %.2g. Dashed: the "
                   "target. Rates were "
                   "tuned with few trials, so small differences mean nothing. Made by:</p>\n<pre>",
                   curve[0].steps, pow(10, s.high), pow(10, s.low));
        for (int i = 0; i < ncurve; i++)
            if (!i || strcmp(curve[i].command, curve[i - 1].command)) {
                html_text(b, curve[i].command);
                buf_puts(b, "\n");
            }
        buf_puts(b, "</pre>\n");
    }
    for (int i = 0, end; i < n; i = end) {
        end = catalogue_group(v, n, i);
        buf_puts(b, catalogue_wrapper(v[i].library) ? "<section><h2>Wrappers: "
                                                    : "<section><h2>Rules: ");
        html_text(b, *v[i].fields.family ? v[i].fields.family : "others");
        buf_puts(b, "</h2><div class=\"plots\">\n");
        for (int k = i; k < end; k++)
            put_entry(&v[k], curve, ncurve, s, b);
        buf_puts(b, "</div></section>\n");
    }
    html_end(b);
    locale_back(was);
}
