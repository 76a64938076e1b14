/* Warnings of a rule: valid, but certainly not intended. Passes add them; `optc check` and `optc
 * explain` print them, optc_rule_warning returns them. */
#include "gen/ir/rule_passes.h"

#include <string.h>

void rule_warn(Rule *r, Place at, const char *text)
{
    Diag d = {0};
    diag_set(&d, at.path, at.line, at.source, "%s", text);
    Warning now = {at.file, at.line, d.text ? arena_strdup(r->arena, d.text) : ""};
    diag_free(&d);
    for (int i = 0; i < r->nwarning; i++)                  /* other variants repeat the warning */
        if (!strcmp(r->warning[i].text, now.text))
            return;
    PUSH(r->arena, r->warning, r->nwarning, r->warning_cap) = now;
    for (Warning *w = &r->warning[r->nwarning - 1]; w > r->warning; w--) {
        if (w[-1].file < now.file || (w[-1].file == now.file && w[-1].line <= now.line))
            break;
        w[0] = w[-1];
        w[-1] = now;
    }
}

/* Rules hold base names; the path of the spec itself is known. */
Place place_in(Place at, const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (slash && at.path && !strcmp(slash + 1, at.path))
        at.path = path;
    return at;
}

Place state_place(const Rule *r, const State *s)
{
    bool known = s->file >= 0 && s->file < r->nfile && s->line > 0;
    return (Place){s->file, s->line, known ? r->file[s->file] : NULL,
                   s->file >= 0 && s->file < r->ntext ? r->text[s->file] : NULL};
}

const char *ring_name(Arena *a, const State *s)
{
    return s->ring ? arena_strndup(a, s->name, (size_t)(strrchr(s->name, '_') - s->name)) : s->name;
}
