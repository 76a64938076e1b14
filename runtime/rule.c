/* A spec becomes a plan and, where it can, native code: built in, from the cache, or through the host compiler. */
#include "gpu.h"

#include "find.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void rule_free(optc_rule *r)
{
    if (!r)
        return;
    gpu_drop(r);
    gen_free(&r->gen);
    free(r->plan_text);
    if (r->handle)
        dlclose(r->handle);
    free(r);
}

static optc_status pick_types(const optc_rule_options *o, Types *t)
{
    int p = inner_type(o->param), g = inner_type(o->grad), s = inner_type(o->state);
    if (p == -2 || g == -2 || s == -2)
        return fail(OPTC_ERROR_ARGUMENT, "optc_compile: unknown storage type");
    t->p = p < 0 ? T_F32 : (Type)p;
    t->g = g < 0 ? t->p : (Type)g;
    t->state = s < 0 ? type_info[t->p].compute : (Type)s;
    return OPTC_OK;
}

static const optc_module *checked(const optc_module *m, const Plan *p)
{
    return m && m->abi == OPTC_ABI && (int)m->nfn >= p->nfn ? m : NULL;
}

static bool use_object(optc_rule *r, void *handle)
{
    const optc_module *m = handle ? checked(dlsym(handle, "optc_rule_module"), r->plan) : NULL;
    if (!m) {
        if (handle)
            dlclose(handle);
        return false;
    }
    r->handle = handle;
    r->module = m;
    return true;
}

static bool use_builtin(optc_rule *r, const char *key)
{
    for (const Builtin *b = builtin_rules; !r->engine->no_builtin && b->key; b++)
        if (!strcmp(b->key, key)) {
            r->module = checked(b->module[r->engine->isa], r->plan);
            snprintf(r->path, sizeof r->path, "built in (%s)", isas[r->engine->isa].name);
            return r->module != NULL;
        }
    return false;
}


void rule_note(const optc_rule *r, const char *target, const char *compiler, CacheNote *out)
{
    *out = (CacheNote){{0}, {0}, {0}, {0}, {0}, {0}};
    const char *p = type_info[r->plan->p].name, *g = type_info[r->plan->g].name, *s = type_info[r->plan->state].name;
    bool same = !strcmp(p, g) && !strcmp(p, s);
    snprintf(out->rule, sizeof out->rule, "%s", r->rule->name);
    snprintf(out->with, sizeof out->with, "%s", r->rule->with);
    snprintf(out->types, sizeof out->types, "%s%s%s%s%s", p, same ? "" : "/", same ? "" : g, same ? "" : "/", same ? "" : s);
    snprintf(out->target, sizeof out->target, "%s", target);
    snprintf(out->compiler, sizeof out->compiler, "%s", compiler);
    Buf b = {0};
    for (int i = 0; i < r->rule->noption; i++)
        buf_printf(&b, "%s%s=%s", i ? "," : "", r->rule->option[i].name, r->rule->option[i].value);
    snprintf(out->options, sizeof out->options, "%s", buf_text(&b) ? buf_text(&b) : "(out of memory)");
    buf_free(&b);
}

static bool compile_native(optc_rule *r, const char *source, const char *flags, CacheSlot *slot, char *why, size_t nwhy)
{
    const optc_engine *e = r->engine;
    size_t size = 0;
    char *object;
    CacheNote note;
    bool ok = use_object(r, compiler_build(e->compiler, source, flags, &object, &size, why, nwhy));
    rule_note(r, isas[e->isa].name, e->compiler, &note);
    cache_end(slot, ok ? object : NULL, size, &note);    /* a cache that cannot be written costs the next start a compilation, no more */
    free(object);
    return ok;
}

/* Fills module and path, or leaves module NULL and says in path why the evaluator is used. false: out of memory. */
static bool make_native(optc_rule *r, const char *source)
{
    const optc_engine *e = r->engine;
    CacheSlot slot;
    size_t size = 0;
    char key[33], flags[400], why[160] = "";
    if (!emit_key(source, key))
        return false;
    memcpy(r->code, key, sizeof r->code);
    if (use_builtin(r, key))
        return true;
    const char *more = getenv("OPTC_CFLAGS");       /* for those who look into generated code: -g, -O1, -fopt-info-vec … */
    snprintf(flags, sizeof flags, "%s -shared %s %.100s", compile_flags, isas[e->isa].flags, more ? more : "");
    /* The key holds what decides the bits: code, flags, level, layout. Which compiler it was does not. */
    char all[512];
    int n = snprintf(all, sizeof all, "%s|%s|abi %d", key, flags, OPTC_ABI);
    hash_hex(hash128(all, (size_t)n), key);
    double t0 = now_ms();
    char *object = cache_begin(&slot, &e->cache, key, "so", e->compiler != NULL, &size);
    bool found = object && use_object(r, cache_load_object(slot.from, object, size));
    free(object);
    if (found) {
        snprintf(r->path, sizeof r->path, "from the cache in %.1f ms (%s)", now_ms() - t0, isas[e->isa].name);
        return true;
    }
    if (!e->compiler) {
        snprintf(r->path, sizeof r->path, "reference evaluator (%s)", e->compiler_off ? "the compiler is turned off" : "no C compiler was found: install one or set OPTC_CC");
        return true;
    }
    if (compile_native(r, source, flags, &slot, why, sizeof why))
        snprintf(r->path, sizeof r->path, "compiled by %.60s in %.0f ms (%s)", e->compiler, now_ms() - t0, isas[e->isa].name);
    else
        snprintf(r->path, sizeof r->path, "reference evaluator (%s)", *why ? why : "the compiled code does not fit");
    return true;
}

/* "stage 1 (map) of rule 'adamw' (adamw.lua:12)": the line of the first value it makes. */
void stage_label(const optc_rule *r, const Stage *s, char *buf, size_t n)
{
    if (!s) {
        snprintf(buf, n, "the step counter of rule '%.40s'", r->rule->name);
        return;
    }
    int at = snprintf(buf, n, "stage %d (%s) of rule '%.40s'", s->fn, stage_name[s->kind], r->rule->name);
    for (int i = 0; i < s->nbody; i++) {
        const Node *v = &r->rule->g.n[s->body[i]];
        if (r->plan->nperiod || !v->line)
            continue;                          /* phases have graphs of their own */
        snprintf(buf + at, n - (size_t)at, " (%.80s:%d)", r->rule->file[v->file], v->line);
        return;
    }
}

void cpu_tuned_key(optc_rule *r, int64_t elements, TunedKey *k)
{
    const Plan *p = r->plan;
    memset(k, 0, sizeof *k);
    char model[96];
    tuned_set_device(k, cpu_model(model, sizeof model), r->engine->threads, 0);
    k->form = FORM_CPU;
    snprintf(k->types, sizeof k->types, "%s,%s,%s", type_info[p->p].name, type_info[p->g].name, type_info[p->state].name);
    snprintf(k->stage, sizeof k->stage, "%s", r->code);
    k->bucket = tuned_bucket(elements);
}

static bool spec_source(optc_rule *r, const optc_rule_options *o, Source *src)
{
    if (!o->text) {
        jmp_buf out;
        volatile bool ok = false;
        r->gen.arena.out = &out;
        if (!setjmp(out))
            ok = find_spec(r->engine->spec_path, o->spec, &r->gen.arena, src, &r->gen.diag);
        r->gen.arena.out = NULL;
        return ok;
    }
    *src = (Source){o->spec ? o->spec : "spec", o->text, strlen(o->text)};
    return true;
}

static optc_status compile(optc_rule *r, const optc_rule_options *o)
{
    Source src;
    GenOptions g = {.with = o->with, .options = o->options, .find = find_wrapper, .find_ctx = r->engine->spec_path};
    optc_status s = pick_types(o, &g.types);
    if (s != OPTC_OK)
        return s;
    if (!spec_source(r, o, &src) || !gen_compile(&r->gen, src, &g))
        return r->gen.diag.text ? fail(OPTC_ERROR_SPEC, "%s", r->gen.diag.text) : fail(OPTC_ERROR_MEMORY, "optc_compile: out of memory");
    r->rule = r->gen.rule;
    r->plan = r->gen.plan;
    Buf text = {0};
    plan_print(&text, r->plan, false);
    r->plan_text = buf_take(&text);
    if (r->engine->gpu && r->plan_text)
        return gpu_compile(r);
    char *source = r->plan_text ? gen_emit(&r->gen, &(EmitOptions){.target = "c"}, &r->gen.diag) : NULL;
    bool ok = source && make_native(r, source);
    free(source);
    return ok ? OPTC_OK : fail(OPTC_ERROR_MEMORY, "optc_compile: %s", r->gen.diag.text ? r->gen.diag.text : "out of memory");
}

optc_status optc_compile(optc_engine *e, const optc_rule_options *o, optc_rule **out)
{
    if (out)
        *out = NULL;
    if (!e || !o || !out || (!o->spec && !o->text))
        return fail(OPTC_ERROR_ARGUMENT, "optc_compile: %s is NULL", !e ? "the engine" : !o ? "the options" : !out ? "the place for the rule" : "the spec");
    optc_rule *r = calloc(1, sizeof *r);
    if (!r)
        return fail(OPTC_ERROR_MEMORY, "optc_compile: out of memory");
    r->engine = e;
    optc_status s = compile(r, o);
    if (s != OPTC_OK) {
        rule_free(r);
        return s;
    }
    atomic_fetch_add(&e->rules, 1);
    *out = r;
    return OPTC_OK;
}

optc_status optc_release(optc_rule *r)
{
    if (!r)
        return OPTC_OK;
    if (atomic_load(&r->bindings) > 0)
        return fail(OPTC_ERROR_BUSY, "optc_release: rule '%s' is still bound %d time%s", r->rule->name, atomic_load(&r->bindings),
                    atomic_load(&r->bindings) == 1 ? "" : "s");
    atomic_fetch_sub(&r->engine->rules, 1);
    rule_free(r);
    return OPTC_OK;
}

const char *optc_rule_name(const optc_rule *r) { return r ? r->rule->name : ""; }

static pthread_mutex_t tuned_lock = PTHREAD_MUTEX_INITIALIZER;        /* of what is said about launches of rules on the CPU */

void rule_launches(optc_rule *r, const Tuned *t, const char *from, int bucket, bool as_model)
{
    char size[32] = "";
    if (t && t->key.bucket != bucket)
        snprintf(size, sizeof size, ", nearest size 2^%d", t->key.bucket);
    pthread_mutex_lock(&tuned_lock);
    r->tuned[0] = 0;
    if (t)
        snprintf(r->tuned, sizeof r->tuned, "; launches tuned (%s%s)%s", from, size, as_model ? ", all as the model has them" : "");
    pthread_mutex_unlock(&tuned_lock);
}

const char *optc_rule_path(const optc_rule *r)
{
    static _Thread_local char text[sizeof r->path + sizeof r->tuned];
    if (!r)
        return "";
    pthread_mutex_t *lock = r->gpu ? &r->gpu->lock : &tuned_lock;
    pthread_mutex_lock(lock);                  /* a binding of another size may write them */
    snprintf(text, sizeof text, "%s%s", r->path, r->tuned);
    pthread_mutex_unlock(lock);
    return text;
}
int optc_rule_native(const optc_rule *r) { return r && (r->module || r->gpu); }
const char *optc_rule_plan(const optc_rule *r) { return r ? r->plan_text : ""; }
int optc_rule_hypers(const optc_rule *r) { return r ? r->rule->nhyper : 0; }
int optc_rule_states(const optc_rule *r) { return r ? r->rule->nstate : 0; }
int optc_rule_entries(const optc_rule *r) { return r ? r->rule->nentry : 0; }
int optc_rule_inputs(const optc_rule *r) { return r ? r->rule->ninput : 0; }

static optc_status numbered(const optc_rule *r, int i, int n, const void *out, const char *call)
{
    if (!r || !out)
        return fail(OPTC_ERROR_ARGUMENT, "%s: NULL", call);
    if (i < 0 || i >= n)
        return fail(OPTC_ERROR_ARGUMENT, "%s: there is no number %d (there are %d)", call, i, n);
    return OPTC_OK;
}

optc_status optc_rule_hyper(const optc_rule *r, int i, optc_hyper *out)
{
    optc_status s = numbered(r, i, optc_rule_hypers(r), out, "optc_rule_hyper");
    if (s == OPTC_OK) {
        const Hyper *h = &r->rule->hyper[i];
        *out = (optc_hyper){h->name, h->def, h->lo, h->hi, h->lo_open, h->hi_open};
    }
    return s;
}

optc_status optc_rule_state(const optc_rule *r, int i, optc_state_info *out)
{
    optc_status s = numbered(r, i, optc_rule_states(r), out, "optc_rule_state");
    if (s == OPTC_OK) {
        const Mem *m = &r->plan->mem[plan_mem_of_state(r->plan, i)];
        *out = (optc_state_info){m->name, dom_info[m->dom].name, public_type(m->type)};
    }
    return s;
}

const char *optc_rule_entry(const optc_rule *r, int i) { return r && i >= 0 && i < r->rule->nentry ? r->rule->entry[i].name : NULL; }
const char *optc_rule_input(const optc_rule *r, int i) { return r && i >= 0 && i < r->rule->ninput ? r->rule->input[i].name : NULL; }
