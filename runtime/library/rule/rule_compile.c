/* Compiles a spec to a plan and, if possible, native code: built in, from the cache, or by the host
 * compiler. */
#include "runtime/library/rule/gpu_code.h"

#include "runtime/library/profile/profile.h"
#include "runtime/library/rule/spec_find.h"
#include "gen/gen.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void rule_make_free(optc_rule *r)
{
    LibraryRule *m = r->library;
    if (!m)
        return;
    gpu_drop(r);
    gen_free(&m->gen);
    free(m->plan_text);
    if (m->handle)
        dlclose(m->handle);
    if (m->runs_handle)
        dlclose(m->runs_handle);
    free(m);
    r->library = NULL;
}

static optc_status pick_types(optc_rule *r, const optc_rule_options *o, Types *t)
{
    int p = inner_type(o->param), g = inner_type(o->grad), s = inner_type(o->state);
    if (p == -2 || g == -2 || s == -2)
        return fail(OPTC_ERROR_ARGUMENT, "optc_compile: unknown storage type");
    Gen *gen = &r->library->gen;
    jmp_buf out;
    volatile bool ok = false;
    gen->arena.out = &out;
    if (!setjmp(out))
        ok = types_choose(&gen->arena, o->types, p, g, s, t, &gen->diag);
    else
        diag_memory(&gen->diag);
    gen->arena.out = NULL;
    return ok               ? OPTC_OK
           : gen->diag.text ? fail(OPTC_ERROR_ARGUMENT, "optc_compile: %s", gen->diag.text)
                            : no_memory("optc_compile");
}

static const optc_module *checked(const optc_module *m, const Plan *p)
{
    return m && m->abi == OPTC_ABI && (int)m->nfn >= p->nfn ? m : NULL;
}

static bool use_object(optc_rule *r, void *handle)
{
    const optc_module *m =
        handle ? checked(dlsym(handle, "optc_rule_module"), r->library->plan) : NULL;
    if (!m) {
        if (handle)
            dlclose(handle);
        return false;
    }
    r->library->handle = handle;
    r->fn = m->fn;
    return true;
}

static bool use_builtin(optc_rule *r, const char *key)
{
    for (const Builtin *b = builtin_rules; !r->engine->library->no_builtin && b->key; b++)
        if (!strcmp(b->key, key)) {
            const optc_module *m = checked(b->module[r->engine->library->isa], r->library->plan);
            r->fn = m ? m->fn : NULL;
            snprintf(r->library->path, sizeof r->library->path, "built in (%s)",
                     isas[r->engine->library->isa].name);
            return r->fn != NULL;
        }
    return false;
}

static bool compile_native(optc_rule *r, const char *source, const char *flags, CacheSlot *slot,
                           char *why, size_t nwhy)
{
    const LibraryEngine *e = r->engine->library;
    size_t size = 0;
    char *object;
    CacheNote note;
    int64_t begun = profile_clock_on();
    bool ok = use_object(r, compiler_build(&e->compiler, source, flags, &object, &size, why, nwhy));
    profile_work("C compiler:", r->program->name, begun);
    rule_note(r, isas[e->isa].name, e->compiler.label, &note);
    /* not an error if the cache cannot be written: the next start compiles again */
    cache_end(slot, ok ? object : NULL, size, &note);
    free(object);
    return ok;
}

/* The evaluator is slow and computes in double precision. The path says so, because its bits are
 * not those of compiled code. */
static void use_evaluator(optc_rule *r, const char *why)
{
    snprintf(r->library->path, sizeof r->library->path,
             "reference evaluator (%s); slow, and its bits are not those of a compiled rule", why);
}

/* Flags that keep the bits, after the user's flags so that they win. clang ignores some with a
 * warning, which -w silences. */
static const char keep_bits[] =
    "-fno-fast-math -fno-unsafe-math-optimizations -fno-single-precision-constant "
    "-ffp-contract=off -fno-math-errno -fno-trapping-math -w";

/* All flags of a compilation. False: they are too long; none is dropped. */
static bool all_flags(const LibraryEngine *e, char *flags, size_t room)
{
    /* OPTC_CFLAGS is for inspecting generated code: -g, -O1, -fopt-info-vec … */
    const char *more = getenv("OPTC_CFLAGS"), *given = e->compiler.fixed_flags;
    int n = snprintf(flags, room, "%s %s -shared %s %s %s", given ? given : "", compile_flags,
                     isas[e->isa].flags, more ? more : "", keep_bits);
    return n >= 0 && (size_t)n < room;
}

/* Sets module and path. If there is no native code, module stays NULL and path has the reason.
 * false: out of memory. */
static bool make_native(optc_rule *r, const char *source)
{
    const LibraryEngine *e = r->engine->library;
    CacheSlot slot;
    size_t size = 0;
    char key[DIGEST_HEX], flags[MOST_FLAGS], all[MOST_FLAGS + 200],
        why[480] = "the compiled code does not fit";
    if (!emit_key(source, key))
        return false;
    snprintf(r->library->code, sizeof r->library->code, "%.32s", key);
    if (use_builtin(r, key))
        return true;
    if (!all_flags(e, flags, sizeof flags)) {
        use_evaluator(r,
                      "what the compiler is given (its own arguments and OPTC_CFLAGS) is too long");
        return true;
    }
    /* The key contains what determines the bits: code, flags, vector level, ABI. The compiler does
     * not matter. */
    int n = snprintf(all, sizeof all, "%s|%s|abi %d", key, flags, OPTC_ABI);
    digest_hex(all, (size_t)n, key);
    double t0 = now_ms();
    char *object = cache_begin(&slot, &e->cache, key, "so", e->compiler.program != NULL, &size);
    bool found = object && use_object(r, cache_load_object(slot.from, object, size));
    free(object);
    if (found) {
        snprintf(r->library->path, sizeof r->library->path, "from the cache in %.1f ms (%s)",
                 now_ms() - t0, isas[e->isa].name);
        return true;
    }
    if (!e->compiler.program) {
        if (e->compiler.wanted)
            snprintf(why, sizeof why, "no C compiler '%.100s' was found", e->compiler.wanted);
        use_evaluator(r, e->compiler_off ? "the compiler is turned off"
                         : e->compiler.wanted
                             ? why
                             : "no C compiler was found: install one or set OPTC_CC");
        return true;
    }
    if (compile_native(r, source, flags, &slot, why, sizeof why))
        snprintf(r->library->path, sizeof r->library->path, "compiled by %.60s in %.0f ms (%s)",
                 e->compiler.label, now_ms() - t0, isas[e->isa].name);
    else if (*why)
        use_evaluator(r, why);
    return r->fn || *why;
}

void cpu_tuned_key(optc_rule *r, int64_t elements, TunedKey *k)
{
    const Plan *p = r->library->plan;
    memset(k, 0, sizeof *k);
    char model[96];
    tuned_set_device(k, cpu_model(model, sizeof model), r->engine->threads, 0);
    k->form = FORM_CPU;
    plan_types_key(p, k->types);
    snprintf(k->stage, sizeof k->stage, "%s", r->library->code);
    k->bucket = tuned_bucket(elements);
}

/* The spec's text, and all its wrappers. */
static bool spec_source(optc_rule *r, const optc_rule_options *o, Source *src, const char **with)
{
    *with = o->with;
    if (!o->text) {
        jmp_buf out;
        Arena *a = &r->library->gen.arena;
        volatile bool ok = false;
        a->out = &out;
        if (!setjmp(out))
            ok = find_spec(r->engine->library->spec_path, spec_split(a, o->spec, o->with, with), a,
                           src, &r->library->gen.diag);
        a->out = NULL;
        return ok;
    }
    *src = (Source){o->spec ? o->spec : "spec", o->text, strlen(o->text)};
    return true;
}

/* Finds wrappers by name: in the caller's texts, then in the engine's folders and the library. */
typedef struct Finder { const optc_rule_options *o; const char *path; } Finder;

static bool find_text(void *ctx, const char *name, Arena *a, Source *out, Diag *d)
{
    const Finder *f = ctx;
    for (int i = 0; i < f->o->nwrappers; i++) {
        const optc_text *w = &f->o->wrappers[i];
        if (w->name && w->text && !strcmp(w->name, name)) {
            *out = (Source){arena_strdup(a, name), w->text, strlen(w->text)};
            return true;
        }
    }
    return find_wrapper((void *)(uintptr_t)f->path, name, a, out, d);
}

static bool lower(optc_rule *r)
{
    jmp_buf oom;
    LibraryRule *m = r->library;
    m->gen.arena.out = &oom;
    if (!setjmp(oom))
        r->program = program_make(&m->gen.arena, m->gen.plan, NULL);
    m->gen.arena.out = NULL;
    return r->program != NULL;
}

/* Library specs declare hyperparameters for some options only, so unread ones are warnings for
 * other specs alone. */
static bool collect_warnings(optc_rule *r, const char *text)
{
    jmp_buf oom;
    LibraryRule *m = r->library;
    const Rule *x = m->rule;
    Arena *a = &m->gen.arena;
    volatile bool ok = false;
    a->out = &oom;
    if (!setjmp(oom)) {
        m->warning = NEWS(a, const char *, x->nwarning + x->nhyper + 1);
        m->unread = NEWS(a, const char *, x->nhyper + 1);
        for (int i = 0; i < x->nwarning; i++)
            m->warning[m->nwarning++] = x->warning[i].text;
        for (int h = 0; h < x->nhyper; h++) {
            Buf b = {.arena = a};
            m->unread[h] = rule_unread(&b, x, h) ? buf_text(&b) : NULL;
            if (m->unread[h] && !spec_embedded(text))
                m->warning[m->nwarning++] = arena_printf(a, "%s: %s", x->name, m->unread[h]);
        }
        ok = true;
    }
    a->out = NULL;
    return ok;
}

static optc_status spec_status(const Diag *d)
{
    return !d->text ? no_memory("optc_compile")
                    : fail(d->kind == DIAG_FILE ? OPTC_ERROR_IO : OPTC_ERROR_SPEC, "%s", d->text);
}

static optc_status pick_product(const optc_rule_options *o, int *out)
{
    char names[80] = "";
    *out = 0;
    for (int i = 0; i < NPRODUCT && o->products; i++) {
        if (!strcmp(o->products, product_info[i].name))
            *out = i + 1;
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "",
                 product_info[i].name);
    }
    if (o->products && !*out)
        return fail(OPTC_ERROR_ARGUMENT, "optc_compile: products = \"%.40s\" is none of %s",
                    o->products, names);
    return OPTC_OK;
}

static optc_status compile(optc_rule *r, const optc_rule_options *o)
{
    Source src;
    Finder f = {o, r->engine->library->spec_path};
    GenOptions g = {.options = o->options, .find = find_text, .find_ctx = &f,
                    .target = engine_target(r->engine), .bindings = o->bindings};
    optc_status s = pick_types(r, o, &g.types);
    if (s == OPTC_OK)
        s = pick_product(o, &g.product);
    if (s != OPTC_OK)
        return s;
    if (o->nwrappers < 0 || (o->nwrappers && !o->wrappers))
        return fail(OPTC_ERROR_ARGUMENT, "optc_compile: the texts of wrappers are NULL");
    if (!spec_source(r, o, &src, &g.with) || !gen_compile(&r->library->gen, src, &g))
        return spec_status(&r->library->gen.diag);
    r->library->rule = r->library->gen.rule;
    r->library->plan = r->library->gen.plan;
    if (!lower(r) || !collect_warnings(r, src.text))
        return no_memory("optc_compile");
    Buf text = {0};
    plan_print(&text, r->library->plan, false);
    r->library->plan_text = buf_take(&text);
    if (r->engine->gpu && r->library->plan_text)
        return gpu_compile(r);
    char *source = r->library->plan_text
        ? gen_emit(&r->library->gen, &(EmitOptions){0}, &r->library->gen.diag)
                                      : NULL;
    bool ok = source && make_native(r, source);
    if (ok && !r->fn) {
        r->library->evaluator = evaluator_device();
        r->device = &r->library->evaluator;
    }
    free(source);
    return ok ? OPTC_OK
              : fail(OPTC_ERROR_MEMORY, "optc_compile: %s",
                     r->library->gen.diag.text ? r->library->gen.diag.text : "out of memory");
}

optc_status rule_make(optc_rule *r, const optc_rule_options *o)
{
    int64_t begun = profile_clock_on();
    r->library = calloc(1, sizeof *r->library);
    optc_status s = r->library ? compile(r, o) : no_memory("optc_compile");
    profile_work("optc_compile", s == OPTC_OK ? r->program->name : "that failed", begun);
    return s;
}

/* Protects LibraryRule.runs. */
static pthread_mutex_t runs_lock = PTHREAD_MUTEX_INITIALIZER;

/* Compiles the CPU code for bindings with runs. A copy of the rule takes it, because the rule has
 * its own code. */
static optc_status make_runs(optc_rule *r)
{
    LibraryRule copy = *r->library;
    optc_rule with = *r;
    Diag d = {0};
    with.library = &copy;
    with.fn = NULL;
    copy.handle = NULL;
    char *source = gen_emit(&r->library->gen, &(EmitOptions){.runs = true}, &d);
    bool ok = source && make_native(&with, source);
    free(source);
    diag_free(&d);
    if (!ok)
        return no_memory("optc_bind");
    r->library->runs_handle = copy.handle;
    r->library->runs = with.fn;
    return with.fn ? OPTC_OK
                   : fail(OPTC_ERROR_UNAVAILABLE,
                          "optc_bind: rule '%s' draws random numbers for pieces that are cut along "
                          "another dimension "
                          "than the first, and its code for these is not available: %s; cut along "
                          "dimension 0",
                          r->program->name, copy.path);
}

optc_status rule_runs(optc_binding *b, const GpuCode **code, const optc_stage_fn **fn)
{
    optc_rule *r = b->rule;
    if (r->engine->gpu)
        return gpu_code_runs(r, b->elems, code);
    pthread_mutex_lock(&runs_lock);
    optc_status s = r->library->runs ? OPTC_OK : make_runs(r);
    *fn = r->library->runs;
    pthread_mutex_unlock(&runs_lock);
    return s;
}

/* Protects LibraryRule.tuned of CPU rules. */
static pthread_mutex_t tuned_lock = PTHREAD_MUTEX_INITIALIZER;

static void rule_launches(optc_rule *r, const Tuned *t, const char *from, int bucket, bool as_model)
{
    char size[32] = "";
    if (t && t->key.bucket != bucket)
        snprintf(size, sizeof size, ", nearest size 2^%d", t->key.bucket);
    pthread_mutex_lock(&tuned_lock);
    r->library->tuned[0] = 0;
    if (t)
        snprintf(r->library->tuned, sizeof r->library->tuned, "; launches tuned (%s%s)%s", from,
                 size, as_model ? ", all as the model has them" : "");
    pthread_mutex_unlock(&tuned_lock);
}

void rule_path(const optc_rule *r, char *buf, size_t n)
{
    pthread_mutex_t *lock = r->library->gpu ? &r->library->gpu->lock : &tuned_lock;
    /* a binding of another size may write path and tuned */
    pthread_mutex_lock(lock);
    snprintf(buf, n, "%s%s", r->library->path, r->library->tuned);
    pthread_mutex_unlock(lock);
}

void rule_use_measured(optc_binding *b)
{
    TunedKey k;
    const char *from = NULL;
    cpu_tuned_key(b->rule, b->elems, &k);
    int lo = 0, hi = INT_MAX;
    tuned_reach(&k, &lo, &hi);
    const Tuned *t = tuned_look(&b->rule->engine->library->tuned, &k, lo, hi, &from);
    if (t) {
        b->threads = t->launch.v[KNOB_THREADS];
        b->grain = t->launch.v[KNOB_ITEMS];
    }
    rule_launches(b->rule, b->rule->fn ? t : NULL, from, k.bucket, !b->threads && !b->grain);
}

const char *optc_rule_field(const optc_rule *r, const char *field)
{
    const Rule *x = r ? r->library->rule : NULL;
    const struct { const char *name, *text;
    } fields[] = {{"doc", x ? x->doc : NULL},
                  {"cite", x ? x->cite : NULL},
                  {"fallback", x ? x->fallback : NULL},
                  {"vectors", x && rule_takes_vectors(x) ? "true" : NULL},
                  {"shapes", x && (x->nvariant > 1 || x->variant[0].view) ? "true" : NULL}};
    for (size_t i = 0; field && i < sizeof fields / sizeof *fields; i++)
        if (!strcmp(field, fields[i].name) && fields[i].text)
            return fields[i].text;
    return "";
}

int optc_rule_option_count(const optc_rule *r) { return r ? r->library->rule->noption : 0; }

optc_status optc_rule_option(const optc_rule *r, int i, optc_option *out)
{
    static const char *const kind[] = {
        [OPTION_TEXT] = "text", [OPTION_NUMBER] = "number", [OPTION_FLAG] = "flag"};
    if (!r || !out)
        return fail(OPTC_ERROR_ARGUMENT, "optc_rule_option: NULL");
    if (i < 0 || i >= r->library->rule->noption)
        return fail(OPTC_ERROR_ARGUMENT, "optc_rule_option: there is no number %d (there are %d)",
                    i, r->library->rule->noption);
    const Option *o = &r->library->rule->option[i];
    *out = (optc_option){o->name, o->value, o->def, o->choices, kind[o->kind]};
    return OPTC_OK;
}

int optc_rule_position(const optc_rule *r, const char *name)
{
    return r && name && r->library->rule->ntext ? spec_position(r->library->rule->text[0], name)
                                                : -1;
}

int optc_rule_changes_grad(const optc_rule *r) { return r && r->library->rule->changes_grad; }

const char *optc_rule_plan(const optc_rule *r) { return r ? r->library->plan_text : ""; }

int optc_rule_warnings(const optc_rule *r) { return r ? r->library->nwarning : 0; }

/* A copy of the rule with other defaults takes the warnings. The pass reads the graph and changes
 * nothing else. */
static bool warn_with(const optc_rule *r, const double *value, Arena *a, Buf *out)
{
    Rule x = *r->library->rule;
    const Plan *p = r->library->plan;
    jmp_buf oom;
    volatile bool ok = false;
    a->out = &oom;
    if (!setjmp(oom)) {
        Diag d = {0};
        x.arena = a;
        x.warning = NULL;
        x.nwarning = x.warning_cap = 0;
        x.hyper = NEWS(a, Hyper, x.nhyper + 1);
        for (int i = 0; i < x.nhyper; i++) {
            x.hyper[i] = r->library->rule->hyper[i];
            x.hyper[i].def = value[i];
        }
        Types types = {.p = p->p, .g = p->g, .state = p->state};
        ok = pass_precision(&x, &types, NULL, &d) && pass_exchange(&x, &types, NULL, &d);
        for (int i = 0; i < x.nwarning; i++)
            buf_printf(out, "%s%s", i ? "\n\n" : "", x.warning[i].text);
        diag_free(&d);
    }
    a->out = NULL;
    return ok;
}

optc_status optc_type_warnings(const optc_rule *r, const optc_setting *hyper, int nhyper, char *buf,
                               size_t size)
{
    static const char call[] = "optc_type_warnings";
    if (!r || !buf || !size || nhyper < 0 || (nhyper && !hyper))
        return fail(OPTC_ERROR_ARGUMENT, "%s: an argument is NULL, or a size is 0", call);
    const Rule *x = r->library->rule;
    double *value = calloc((size_t)x->nhyper + 1, sizeof *value);
    if (!value)
        return no_memory(call);
    for (int i = 0; i < x->nhyper; i++)
        value[i] = x->hyper[i].def;
    optc_status s = OPTC_OK;
    for (int i = 0; i < nhyper && s == OPTC_OK; i++) {
        int k = 0;
        s = find_hyper(r->program, call, hyper[i].name, &k);
        value[k] = s == OPTC_OK ? hyper[i].value : 0;
    }
    Arena a = {0};
    Buf out = {.arena = &a};
    if (s == OPTC_OK && !warn_with(r, value, &a, &out))
        s = no_memory(call);
    if (s == OPTC_OK)
        snprintf(buf, size, "%s", out.len ? buf_text(&out) : "");
    arena_free(&a);
    free(value);
    return s;
}

const char *optc_rule_warning(const optc_rule *r, int i)
{
    return i >= 0 && i < optc_rule_warnings(r) ? r->library->warning[i] : NULL;
}

const char *optc_rule_unread(const optc_rule *r, const char *hyper)
{
    for (int i = 0; r && hyper && i < r->library->rule->nhyper; i++)
        if (!strcmp(r->library->rule->hyper[i].name, hyper))
            return r->library->unread[i];
    return NULL;
}
