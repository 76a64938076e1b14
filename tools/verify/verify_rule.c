/* Verifies a stage: emits it, compiles it, runs each case and compares what it stored with the
 * plan. */
#include "tools/verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool verify_begin(Verify *v, const Gen *g, const Nvrtc *n, int arch)
{
    *v = (Verify){.gen = g, .plan = g->plan, .nvrtc = n, .arch = arch};
    return true;
}

static void drop_stage(Verify *v)
{
    free(v->ptx);
    v->ptx = NULL;
    jmp_buf *out = v->arena.out;
    arena_free(&v->arena);
    v->arena = (Arena){.out = out};
}

void verify_end(Verify *v)
{
    drop_stage(v);
    terms_free(&v->pool);
    arena_free(&v->scratch);
    free(v->proofs.key);
}

/* ---- shared functions, compiled alone ---- */
/* Operations that the plan's side does not expand itself. OP_SQRT stands for 1 / sqrt(x) by
 * approximations. */
static bool is_shared_function(Op op)
{
    return (op >= OP_FLOOR && op <= OP_CBRT && op != OP_POWI) ||
           (op >= OP_JOIN16 && op <= OP_HALF_STEP);
}

/* op is a shared function, compiled alone */
static bool verify_needs(const Verify *v, Op op)
{
    const Stage *s = v->at.stage;
    for (int i = 0; i < s->nbody; i++)
        if (v->phase->g->n[s->body[i]].op == op && is_shared_function(op))
            return true;
    return false;
}

static void put_function(Buf *b, Op op, bool f64, const char *form)
{
    const char *c = f64 ? "double" : "float";
    buf_printf(b,
               "extern \"C\" __global__ void optc_alone_%s(%s *o, const %s *a, const %s *b, const "
               "%s *c) { *o = ",
               op_info[op].name, c, c, c, c);
    for (const char *f = form; *f; f++) {
        if (*f == '~')
            buf_puts(b, f64 ? "" : "f");
        else if (*f == '%' && f[1])
            buf_printf(b, "*%c", *++f);
        else
            buf_add(b, f, 1);
    }
    buf_puts(b, "; }\n");
}

static void put_functions(Verify *v, Buf *b, const char *source)
{
    bool f64 = dom_wide(stage_info[v->at.stage->kind].dom) || v->plan->real == T_F64;
    for (int op = 0; op < NOPS; op++) {
        bool root = op == OP_SQRT && strstr(source, "optc_rsqrtf(float") && !f64;
        v->has_ref[op] = verify_needs(v, (Op)op) || root;
        if (v->has_ref[op])
            put_function(b, (Op)op, f64, root ? "optc_rsqrtf(%a)" : op_info[op].form);
    }
}

/* ---- compiling ---- */
static bool read_kernels(Verify *v)
{
    char error[PTX_ERROR];
    if (!ptx_read(&v->arena, v->ptx, v->kernel_name, &v->kernel, error)) {
        snprintf(v->why, sizeof v->why, "%s", error);
        return false;
    }
    for (int op = 0; op < NOPS; op++) {
        const char *name = arena_printf(&v->arena, "optc_alone_%s", op_info[op].name);
        if (v->has_ref[op] && !ptx_read(&v->arena, v->ptx, name, &v->ref[op], error)) {
            snprintf(v->why, sizeof v->why, "%s", error);
            return false;
        }
    }
    return true;
}

VerifyResult verify_compile(Verify *v, int fn)
{
    drop_stage(v);
    *v->why = 0;
    v->steps = 0;
    v->at = plan_at(v->plan, fn);
    v->phase = &v->at.entry->phase[v->at.phase];
    v->launch = launch_model(v->plan, v->at.stage, 0);
    char name[MOST_STAGE_NAME];
    v->kernel_name = arena_strdup(
        &v->arena, emit_stage_name(name, v->plan, v->at.entry->name, v->at.phase, v->at.stage));
    bool *select = NEWS(&v->arena, bool, v->plan->nfn);
    select[fn] = true;
    Diag d = {0};
    char *source = gen_emit(v->gen, &(EmitOptions){.select = select, .target = &target_cuda}, &d),
         *log = NULL;
    size_t size = 0;
    if (!source) {
        diag_free(&d);
        snprintf(v->why, sizeof v->why, "its code could not be emitted");
        return VERIFY_SKIPPED;
    }
    Buf all = {.arena = &v->arena};
    buf_puts(&all, source);
    put_functions(v, &all, source);
    free(source);
    char *ptx = nvrtc_build(v->nvrtc, buf_text(&all), v->kernel_name, v->arch, true, &size, &log);
    if (!ptx)
        snprintf(v->why, sizeof v->why, "NVRTC refused it: %.300s", log ? log : "out of memory");
    free(log);
    if (!ptx)
        return VERIFY_SKIPPED;
    v->ptx = malloc(size + 1);
    if (!v->ptx)
        arena_out(&v->arena);
    memcpy(v->ptx, ptx, size);
    v->ptx[size] = 0;
    free(ptx);
    return read_kernels(v) ? VERIFY_PROVED : VERIFY_SKIPPED;
}

/* ---- comparing ---- */
/* The head of a term's text. */
static void put_term(Buf *b, Verify *v, const char *before, Term t)
{
    enum { MOST_TEXT = 240 };
    Buf text = {0};
    term_print(&text, &v->pool, t, 6);
    bool cut = text.len > MOST_TEXT;
    buf_printf(b, "\n  %-18s %.*s%s", before, MOST_TEXT, text.oom ? "" : buf_text(&text),
               cut ? " …" : "");
    buf_free(&text);
}

static void describe(PlanSide *side, int mem, int64_t index, Term is, Term want)
{
    Verify *v = side->c->v;
    Buf b = {0};
    Shape s = side->c->plan->tensor[side->tensor].shape;
    const char *array = v->plan->mem[mem].name;
    buf_printf(&b, "%s[%lld] differs; case '%s', tensor %d of %lld x %lld x %lld",
               *array ? array : "a partial", (long long)index, side->c->plan->name, side->tensor,
               (long long)s.slices, (long long)s.rows, (long long)s.cols);
    if (v->proofs.undecided)
        buf_puts(&b, "; or the two are equal: too many cases to decide");
    put_term(&b, v, "the code stores", is);
    put_term(&b, v, "the plan says", want);
    Term x = is, y = want;
    term_difference(&v->pool, &x, &y);
    if (x != is) {
        put_term(&b, v, "they differ in", x);
        put_term(&b, v, "against", y);
    }
    snprintf(v->why, sizeof v->why, "%s", b.oom ? "it differs; out of memory" : buf_text(&b));
    buf_free(&b);
}

/* What the kernel stored at an index; 0: nothing. */
static Term stored_at(VerifyCase *c, int area, int width, int64_t index)
{
    const Byte *b = c->memory.area[area].byte + index * width;
    for (int i = 0; i < width; i++)
        if (b[i].term < 0)
            return 0;
    return term_of(&c->v->pool, width, bytes_value(&c->v->pool, width, b));
}

static bool same_at(PlanSide *s, int mem, int64_t index, bool fold, Access a)
{
    VerifyCase *c = s->c;
    Verify *v = c->v;
    Type t = v->plan->mem[mem].type;
    s->now++;
    /* a half: the lower triangle is mirrored */
    int64_t of = index;
    Dom own = stage_info[s->s->kind].dom;
    Shape h = c->plan->tensor[s->tensor].shape;
    if (s->s->half && index < side_mirrored(own, index, h))
        of = side_mirrored(own, index, h);
    Term want = fold ? side_partial(s, a, index) : side_stored(s, t, a.val, of);
    Term is = stored_at(c, case_area(c, s->tensor, mem), type_info[t].bytes, index);
    if (s->missing)
        return false;
    if (!is) {
        snprintf(v->why, sizeof v->why, "%s[%lld] is not stored (case: %s, tensor %d)",
                 v->plan->mem[mem].name, (long long)index, c->plan->name, s->tensor);
        return false;
    }
    v->values++;
    v->proofs.undecided = false;
    if (terms_equal(&v->pool, &v->proofs, is, want))
        return true;
    /* 1 / sqrt(x) may be computed from approximations */
    if (!s->approximate_root && v->has_ref[OP_SQRT]) {
        s->approximate_root = true;
        bool ok = same_at(s, mem, index, fold, a);
        s->approximate_root = false;
        return ok;
    }
    describe(s, mem, index, is, want);
    return false;
}

/* A tensor that takes no part keeps its arrays. Its partials are the identity. */
static bool same_absent(PlanSide *s, int mem, int64_t index, bool fold)
{
    VerifyCase *c = s->c;
    Verify *v = c->v;
    Term is =
        stored_at(c, case_area(c, s->tensor, mem), type_info[v->plan->mem[mem].type].bytes, index);
    if (!fold && is)
        snprintf(v->why, sizeof v->why,
                 "%s[%lld] is stored for a tensor that takes no part in the step",
                 v->plan->mem[mem].name, (long long)index);
    return fold || !is;
}

static bool same_arrays(PlanSide *s)
{
    VerifyCase *c = s->c;
    const Stage *st = s->s;
    bool ok = true, absent = c->plan->tensor[s->tensor].absent;
    for (int k = 0; k < st->nstore + st->nfold && ok; k++) {
        bool fold = k >= st->nstore;
        Access a = fold ? st->fold[k - st->nstore] : st->store[k];
        int mem = access_mem(c, a);
        /* each tensor writes one of the partials */
        bool own = fold && is_global(&s->g->n[a.val]);
        int64_t n = case_length(c, s->tensor, mem);
        for (int64_t i = own ? s->tensor : 0; i < (own ? s->tensor + 1 : n) && ok; i++)
            ok = absent ? same_absent(s, mem, i, fold) : same_at(s, mem, i, fold, a);
    }
    return ok;
}

static VerifyResult run_case(Verify *v, const CasePlan *plan)
{
    VerifyCase c;
    terms_reset(&v->pool);
    case_start(&c, v, plan);
    v->cases++;
    bool ran = case_run(&c);
    if (ran && c.machine.raced) {                          /* again, with the writers known */
        PtxMemory before = c.memory;
        case_start(&c, v, plan);
        for (int i = 0; i < c.memory.n; i++)
            c.memory.area[i].known = before.area[i].touch;
        ran = case_run(&c);
    }
    if (!ran) {
        snprintf(v->why, sizeof v->why, "%s (case: %s, block %d)", c.machine.error, plan->name,
                 c.machine.block);
        return strstr(c.machine.error, "not understood") ? VERIFY_SKIPPED : VERIFY_WRONG;
    }
    for (int t = 0; t < plan->n; t++) {
        PlanSide s;
        side_start(&s, &c, t);
        bool ok = same_arrays(&s);
        if (s.missing) {
            snprintf(v->why, sizeof v->why, "not supported yet: %s", s.missing);
            return VERIFY_SKIPPED;
        }
        if (!ok)
            return v->proofs.undecided ? VERIFY_SKIPPED : VERIFY_WRONG;
    }
    for (int g = 0; plan->advance && g < plan->n; g++) {
        Term t = stored_at(&c, c.hyper[g], 8, 0);
        if (!t || !terms_equal(&v->pool, &v->proofs, t, c.t[g])) {
            snprintf(v->why, sizeof v->why, "the step of group %d is not advanced (case: %s)", g,
                     plan->name);
            return VERIFY_WRONG;
        }
    }
    return VERIFY_PROVED;
}

VerifyResult verify_stage(Verify *v)
{
    enum { MOST = 8 };
    CasePlan plan[MOST];
    int n = verify_cases(v, plan);
    VerifyResult r = VERIFY_PROVED;
    jmp_buf *out = v->arena.out;
    if (!v->pool.arena)
        terms_start(&v->pool, &v->arena);
    for (int i = 0; i < n && r == VERIFY_PROVED; i++) {
        v->scratch.out = out;
        v->pool.arena = &v->scratch;
        v->pool.nname = v->pool.name_cap = 0;
        v->pool.name = NULL;
        r = run_case(v, &plan[i]);
        arena_free(&v->scratch);
        v->scratch = (Arena){.out = out};
    }
    return r;
}
