/* SPEC arguments: loads a spec by name, by path or from standard input, and compiles it to a rule
 * and a plan. */
#include "tools/tools.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char ir_mark[] = "optc-ir ";        /* the reader checks the version */

/* Finds wrappers by name. For a wrapper that is being checked, own is its text, wherever the file
 * is. */
typedef struct Finder { const char *path; const char *own_name; Source own; } Finder;

static bool find(void *ctx, const char *name, Arena *a, Source *out, Diag *d)
{
    const Finder *f = ctx;
    if (f->own_name && !strcmp(f->own_name, name)) {
        *out = f->own;
        return true;
    }
    return find_wrapper((void *)(uintptr_t)f->path, name, a, out, d);
}

static bool load_stdin(Spec *s)
{
    size_t len = 0;
    char *text = cli_read_all(stdin, (1 << 20) + 1, &len);
    if (!text) {
        diag_set(&s->gen.diag, "stdin", 0, NULL, "cannot read the spec: %s", strerror(errno));
        return false;
    }
    s->src = (Source){"stdin", arena_strndup(&s->gen.arena, text, len), len};
    free(text);
    return true;
}

static bool load(Spec *s, const char *arg, const CompileOpts *c, bool wrappers)
{
    Arena *a = &s->gen.arena;
    Diag *d = &s->gen.diag;
    if (!strcmp(arg, "-"))
        return load_stdin(s);
    /* An argument with a dot is a path, but find_spec treats only names of Lua files as paths. */
    if (strchr(arg, '.') && !strchr(arg, '/') && access(arg, F_OK) == 0)
        return read_text(arg, a, &s->src, d);
    if (find_spec(c->path, arg, a, &s->src, d))
        return true;
    Diag quiet = {0};
    bool wrapper =
        is_ident(arg) && find_wrapper((void *)(uintptr_t)c->path, arg, a, &s->src, &quiet);
    diag_free(&quiet);
    if (wrapper && wrappers)
        diag_free(d);
    else if (wrapper) {
        diag_free(d);
        diag_set(d, NULL, 0, NULL, "'%s' is a wrapper: put it around a rule with --with %s", arg,
                 arg);
    }
    return wrapper && wrappers;
}

static bool compile(Spec *s, const CompileOpts *c, bool wrappers, const SpecDump *dump)
{
    Arena *a = &s->gen.arena;
    Finder f = {.path = c->path};
    GenOptions o = {.with = c->with,
                    .options = c->options,
                    .types = s->types,
                    .product = c->product,
                    .target = c->target,
                    .find = find,
                    .find_ctx = &f};
    if (dump) {
        o.dump = dump->pass;
        o.dump_to = dump->to;
        o.time_passes = dump->time;
        o.rule_only =
            dump->pass && !dump->time && strcmp(dump->pass, "plan") && strcmp(dump->pass, "all");
    }
    s->is_ir = s->src.len >= strlen(ir_mark) && !memcmp(s->src.text, ir_mark, strlen(ir_mark));
    if (s->is_ir) {
        if ((c->with && *c->with) || (c->options && *c->options)) {
            diag_set(&s->gen.diag, s->src.path, 0, NULL,
                     "IR text is a finished rule: --with and --options apply to specs");
            return false;
        }
        return gen_read_ir(&s->gen, s->src, &o);
    }
    Fields fields;
    fields_read(a, s->src.text, s->src.len, &fields);
    Source spec = s->src;
    if (wrappers && !strcmp(fields.kind, "wrapper") && is_ident(fields.name)) {
        s->wrapper = f.own_name = fields.name;
        f.own = s->src;
        o.with = c->with && *c->with ? arena_printf(a, "%s,%s", fields.name, c->with) : fields.name;
        if (!find_spec(NULL, "sgd", a, &spec, &s->gen.diag))
            return false;
    }
    return gen_compile(&s->gen, spec, &o);
}

bool spec_open(Spec *s, const char *arg, const CompileOpts *c, bool wrappers, const SpecDump *dump)
{
    *s = (Spec){0};
    jmp_buf out;
    s->gen.arena.out = &out;
    volatile bool ok = false;
    if (setjmp(out)) {
        diag_set(&s->gen.diag, arg, 0, NULL, "out of memory");
    } else {
        CompileOpts all = *c;
        const char *spec = spec_split(&s->gen.arena, arg, c->with, &all.with);
        s->asked = all;
        ok = types_choose(&s->gen.arena, c->types, c->p, c->g, c->state, &s->types, &s->gen.diag) &&
             load(s, spec, &all, wrappers) && compile(s, &all, wrappers, dump);
    }
    s->gen.arena.out = NULL;
    return ok;
}

bool spec_open_text(Spec *s, const char *name, const char *text, const CompileOpts *c)
{
    *s = (Spec){.asked = *c};
    jmp_buf out;
    s->gen.arena.out = &out;
    volatile bool ok = false;
    if (setjmp(out)) {
        diag_set(&s->gen.diag, name, 0, NULL, "out of memory");
    } else {
        s->src = (Source){arena_strdup(&s->gen.arena, name), arena_strdup(&s->gen.arena, text),
                          strlen(text)};
        ok = types_choose(&s->gen.arena, c->types, c->p, c->g, c->state, &s->types, &s->gen.diag) &&
             compile(s, c, false, NULL);
    }
    s->gen.arena.out = NULL;
    return ok;
}

bool spec_for_gpu(Spec *s, const Spec *of)
{
    *s = (Spec){.src = of->src, .types = of->types, .asked = of->asked};
    s->asked.target = &target_cuda;
    jmp_buf out;
    s->gen.arena.out = &out;
    bool ok = false;
    if (setjmp(out))
        diag_set(&s->gen.diag, of->src.path, 0, NULL, "out of memory");
    else
        ok = compile(s, &s->asked, false, NULL);
    s->gen.arena.out = NULL;
    return ok;
}

static optc_type public_type(int t) { return t < 0 ? OPTC_DEFAULT : (optc_type)(t + 1); }

optc_rule_options spec_rule_options(const CompileOpts *c, const char *spec, const char *with)
{
    return (optc_rule_options){.spec = spec,
                               .with = with,
                               .options = c->options,
                               .param = public_type(c->p),
                               .grad = public_type(c->g),
                               .state = public_type(c->state),
                               .types = c->types,
                               .products = c->product ? product_info[c->product - 1].name : NULL};
}

void spec_close(Spec *s) { gen_free(&s->gen); }

int spec_fail(const Spec *s)
{
    return cli_fail("%s", s->gen.diag.text ? s->gen.diag.text : "out of memory");
}

void spec_warnings(const Spec *s)
{
    for (int i = 0; i < s->gen.rule->nwarning; i++)
        cli_warning("%s", s->gen.rule->warning[i].text);
}

void spec_note(const Spec *s)
{
    if (s->gen.rule->note)
        printf("    note: %s\n", s->gen.rule->note);
}

int spec_entry(const Plan *p, const char *name)
{
    for (int e = 0; e < p->nentry; e++)
        if (!strcmp(p->entry[e].name, name))
            return e;
    return -1;
}

void spec_bytes(const Plan *p, int entry, int variant, int *least, int *most)
{
    *least = *most = 0;
    for (int m = 0; m < p->entry[entry].nphase; m++) {
        const Phase *ph = &p->entry[entry].phase[m];
        int bytes = 0;
        for (int i = 0; i < ph->nstage; i++) {
            const Stage *st = &ph->stage[i];
            if (st->variant == variant && is_elem(st->kind))
                bytes += st->bytes_read + st->bytes_written;
        }
        *least = m == 0 || bytes < *least ? bytes : *least;
        *most = m == 0 || bytes > *most ? bytes : *most;
    }
}

void spec_bytes_text(Buf *b, const Plan *p, int entry)
{
    for (int v = 0; v < p->rule->nvariant; v++) {
        int least, most;
        spec_bytes(p, entry, v, &least, &most);
        buf_printf(b, "%s%d", v ? "/" : "", least);
        if (most > least)
            buf_printf(b, "-%d", most);
    }
}
