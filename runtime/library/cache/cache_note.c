/* The description of a cache entry: its rule, target and compiler. */
#include "runtime/library/internal.h"

#include <stdio.h>
#include <string.h>

void rule_note(const optc_rule *r, const char *target, const char *compiler, CacheNote *out)
{
    *out = (CacheNote){{0}, {0}, {0}, {0}, {0}, {0}};
    const char *p = type_info[r->library->plan->p].name, *g = type_info[r->library->plan->g].name,
               *s = type_info[r->library->plan->state].name;
    const char *beside = r->library->rule->types;
    bool same = !strcmp(p, g) && !strcmp(p, s);
    snprintf(out->rule, sizeof out->rule, "%s", r->library->rule->name);
    snprintf(out->with, sizeof out->with, "%s", r->library->rule->with);
    snprintf(out->types, sizeof out->types, "%s%s%s%s%s%s%s", p, same ? "" : "/", same ? "" : g,
             same ? "" : "/", same ? "" : s, beside ? "," : "", beside ? beside : "");
    snprintf(out->target, sizeof out->target, "%s", target);
    snprintf(out->compiler, sizeof out->compiler, "%s", compiler);
    Buf b = {0};
    for (int i = 0; i < r->library->rule->noption; i++)
        buf_printf(&b, "%s%s=%s", i ? "," : "", r->library->rule->option[i].name,
                   r->library->rule->option[i].value);
    snprintf(out->options, sizeof out->options, "%s",
             buf_text(&b) ? buf_text(&b) : "(out of memory)");
    buf_free(&b);
}
