/* The head of an emitted file: the rule, its options and the command that generates it again. Also
 * the list of targets, the division into parts, the hash of a file, and names of stages. */
#include "gen/emit/emit.h"

#include <stdio.h>
#include <string.h>

/* Free text inside a comment must not end it, even through trigraphs and spliced lines: control
 * characters, non-ASCII bytes and * \ ? become spaces. */
const char *emit_comment_text(Arena *a, const char *s)
{
    char *t = arena_strdup(a, s);
    for (char *c = t; *c; c++)
        if (*c < 32 || *c > 126 || strchr("*\\?", *c))
            *c = ' ';
    return t;
}

/* A file name for the quotes of a #line directive. */
const char *emit_file(Arena *a, const char *s)
{
    char *t = arena_strdup(a, s);
    for (char *c = t; *c; c++)
        if ((unsigned char)*c < 32 || *c == '"' || *c == '\\' || *c == 127)
            *c = '_';
    return t;
}

const char *emit_about(Arena *a, const Gen *g)
{
    const Rule *r = g->rule;
    const Plan *p = g->plan;
    Buf b = {.arena = a};
    if (*r->doc)
        buf_printf(&b, " * %s\n", emit_comment_text(a, r->doc));
    if (*r->cite)
        buf_printf(&b, " * %s\n", emit_comment_text(a, r->cite));
    for (int k = 0; k < r->nvariant && r->nvariant > 1; k++)
        buf_printf(&b, "%s %s%s", k ? "" : " * variants:", r->variant[k].name,
                   k < r->nvariant - 1 ? "," : "\n");
    if (r->noption)
        buf_puts(&b, " * options:");
    for (int i = 0; i < r->noption; i++)
        buf_printf(&b, " %s=%s", r->option[i].name, emit_comment_text(a, r->option[i].value));
    buf_printf(&b, "%s * types: p %s, g %s, state %s%s%s", r->noption ? "\n" : "",
               type_info[p->p].name, type_info[p->g].name, type_info[p->state].name,
               r->types ? ", " : "", r->types ? r->types : "");
    return buf_text(&b);
}

const char *emit_title(Arena *a, const Rule *r)
{
    return emit_comment_text(a,
                             *r->with ? arena_printf(a, "%s with %s", r->name, r->with) : r->name);
}

/* An option of the fallback rule with another value than its default. Options of wrappers are in
 * r->with. */
static bool fallback_option(const Rule *r, const Option *o)
{
    size_t n = r->fallback ? strlen(r->fallback) : 0;
    return n && !strncmp(o->name, r->fallback, n) && o->name[n] == '.' && strcmp(o->value, o->def);
}

/* The command that generates the file again, without paths. */
static const char *own_command(Arena *a, const Gen *g, const char *target)
{
    Buf b = {.arena = a};
    const Rule *r = g->rule;
    int given = 0;
    buf_printf(&b, "optc emit --target %s %s", target, r->name);
    if (*r->with) {
        buf_puts(&b, " --with ");
        buf_shell(&b, r->with);
    }
    Buf options = {.arena = a};
    for (int i = 0; i < r->noption; i++)
        if (!strchr(r->option[i].name, '.') || fallback_option(r, &r->option[i]))
            buf_printf(&options, "%s%s=%s", given++ ? "," : "", r->option[i].name,
                       r->option[i].value);
    if (given) {
        buf_puts(&b, " --options ");
        buf_shell(&b, buf_text(&options));
    }
    buf_printf(&b, " --type %s --grad-type %s --state-type %s", type_info[g->plan->p].name,
               type_info[g->plan->g].name, type_info[g->plan->state].name);
    if (r->types)
        buf_printf(&b, " --types %s", r->types);
    if (g->plan->precision != rule_product(r, g->plan->p) || r->products_chosen)
        buf_printf(&b, " --products %s", product_info[g->plan->precision].name);
    return buf_text(&b);
}

/* Stages that walk along arrays take longest to compile. */
static bool walks(const Stage *s)
{
    return is_elem(s->kind) || dom_square(stage_info[s->kind].dom);
}

/* Stages of a program. An empty one takes NVRTC 0.1 s, and each of these stages as long: Mousse's
 * 10 took 1.1 s, longer than any other program. */
enum { MOST_TOGETHER = 4 };

static bool has_room(const int *of, int n, int program)
{
    int stages = 0;
    for (int k = 0; k < n; k++)
        stages += of[k] == program;
    return stages < MOST_TOGETHER;
}

/* Each stage that walks along arrays is a program. The others are quick to compile: some of a
 * variant are one. A binding without tensors of a variant does not need its programs. */
int emit_divide(const Plan *p, int *of)
{
    int n = 0;
    for (int f = 0; f < p->nfn; f++) {
        const Stage *s = plan_at(p, f).stage;
        of[f] = -1;
        for (int k = 0; k < f && s && !walks(s) && of[f] < 0; k++) {
            const Stage *x = plan_at(p, k).stage;
            if (x && !walks(x) && x->variant == s->variant &&
                (x->kind == S_GROUP) == (s->kind == S_GROUP) && has_room(of, f, of[k]))
                of[f] = of[k];
        }
        if (s && of[f] < 0)
            of[f] = n++;
    }
    return n;
}

bool emit_key(const char *source, char hex[DIGEST_HEX])
{
    const char *code = strstr(source, "*/\n");
    Buf b = {0};
    for (const char *s = code ? code + 3 : source, *end; *s; s = end) {
        end = s + strcspn(s, "\n");
        end += *end == '\n';
        if (strncmp(s, "#line ", 6))
            buf_add(&b, s, (size_t)(end - s));
    }
    const char *kept = buf_text(&b);
    if (kept)
        digest_hex(kept, b.len, hex);
    buf_free(&b);
    return kept != NULL;
}

const Target *const gen_targets[] = {&target_c, &target_cuda, NULL};

const Target *target_by_name(const char *name)
{
    const Target *const *t = gen_targets;
    while (*t && strcmp((*t)->name, name))
        t++;
    return *t;
}

/* Everything but the result is in a scratch arena, whose out-of-memory jump ends here. */
char *gen_emit(const Gen *g, const EmitOptions *o, Diag *d)
{
    jmp_buf out;
    Arena scratch = {.out = &out};
    char *volatile text = NULL;
    LocaleMark was = locale_plain();
    const Target *t = o->target ? o->target : g->plan->target;
    if (setjmp(out)) {
        diag_memory(d);
    } else {
        Buf b = {.arena = &scratch};
        EmitOptions with = *o;
        with.command = o->command ? o->command : own_command(&scratch, g, t->name);
        if (!t->emit(g, &with, &scratch, &b))
            diag_set(d, NULL, 0, NULL,
                     "internal error: %s misses a section or names an unknown hole", t->templates);
        else if (!(text = buf_take(&b)))
            diag_memory(d);
    }
    locale_back(was);
    arena_free(&scratch);
    return text;
}

/* ---- names and comments of stages ---- */
const char *emit_stage_name(char buf[MOST_STAGE_NAME], const Plan *p, const char *entry, int mask,
                            const Stage *s)
{
    char phase[24] = "";
    if (p->nperiod)
        snprintf(phase, sizeof phase, "_phase%d", mask);
    snprintf(buf, MOST_STAGE_NAME, "%.40s%s_%d_%s%s%.40s", entry, phase, s->fn,
             stage_info[s->kind].name, s->variant ? "_" : "",
             s->variant ? p->rule->variant[s->variant].name : "");
    return buf;
}

const char *emit_prefixed(Arena *a, const char *prefix, const Plan *p, const char *entry, int mask,
                          const Stage *s)
{
    char name[MOST_STAGE_NAME];
    return arena_printf(a, "%s%s", prefix ? prefix : "", emit_stage_name(name, p, entry, mask, s));
}

static void name_list(Buf *b, const Access *v, int n, const char *what)
{
    enum { WIDTH = 112 };
    buf_puts(b, n ? what : "");
    for (int i = 0; i < n; i++) {
        const char *line = strrchr(buf_text(b), '\n');
        bool full = strlen(line ? line : buf_text(b)) + strlen(v[i].name) > WIDTH;
        buf_printf(b, "%s %s", full ? "\n *" : "", v[i].name);
    }
}

const char *emit_stage_comment(Arena *a, const Stage *s)
{
    Buf b = {.arena = a};
    buf_printf(&b, "/* %s:", stage_info[s->kind].what);
    name_list(&b, s->load, s->nload, " reads");
    name_list(&b, s->store, s->nstore, s->nload ? "; writes" : " writes");
    name_list(&b, s->fold, s->nfold, s->nload || s->nstore ? "; folds into" : " folds into");
    buf_printf(&b, ". %d + %d bytes.%s */", s->bytes_read, s->bytes_written,
               s->shared ? " Several stages share this function, each with its own arrays." : "");
    return buf_text(&b);
}
