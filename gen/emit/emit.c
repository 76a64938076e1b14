/* Names and expressions of emitted code. Values keep the spec's names. A value that is used once
 * and has no name becomes part of its user's expression. */
#include "gen/emit/emit.h"
#include "gen/emit/template.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *emit_real(const Emit *e) { return e->wide ? "double" : type_info[e->plan->real].c; }
const char *emit_suffix(const Emit *e) { return e->wide || e->plan->real == T_F64 ? "" : "f"; }
const char *emit_type_suffix(Type t) { return t == T_F64 ? "" : "f"; }

/* The entry of an identifier, made if it is new (count 0). A hash table: a spec's loop can make
 * thousands of locals. */
static Used *used_entry(Emit *e, const char *s)
{
    if (e->nused * 2 >= e->used_cap) {
        Used *old = e->used;
        int n = e->used_cap;
        e->used_cap = n ? n * 2 : 256;
        e->used = NEWS(e->arena, Used, e->used_cap);
        e->nused = 0;
        for (int i = 0; i < n; i++)
            if (old[i].name)
                *used_entry(e, old[i].name) = old[i];
    }
    uint64_t h = hash64(3, s, strlen(s));
    while (e->used[h & (uint64_t)(e->used_cap - 1)].name &&
           strcmp(e->used[h & (uint64_t)(e->used_cap - 1)].name, s))
        h++;
    Used *u = &e->used[h & (uint64_t)(e->used_cap - 1)];
    if (!u->name) {
        u->name = arena_strdup(e->arena, s);
        e->nused++;
    }
    return u;
}

/* Names in capitals may be macros: NULL, EOF, INT_MAX, M_PI … Single letters are allowed, as papers
 * use them. */
static bool is_loud(const char *s)
{
    for (const char *c = s; *c; c++)
        if (*c >= 'a' && *c <= 'z')
            return false;
    return strlen(s) > 1;
}

const char *emit_name(Emit *e, const char *want)
{
    char base[80];
    /* names of the runtime, of the compiler, macros of headers */
    bool ours = !strncasecmp(want, "optc", 4) || want[0] == '_' || is_loud(want);
    snprintf(base, sizeof base, "%s%.60s", ours ? "x_" : "", want);
    for (char *c = base; *c; c++)
        if (*c == '.')
            *c = '_';
    int suffix = used_entry(e, base)->count++;
    while (suffix) {
        const char *s = arena_printf(e->arena, "%s_%d", base, suffix + 1);
        Used *u = used_entry(e, s);
        if (u->count++ == 0)
            return u->name;
        suffix = used_entry(e, base)->count++;
    }
    return used_entry(e, base)->name;
}

const char *emit_value_name(Emit *e, Ref r)
{
    return value_name(e->arena, e->plan->rule, e->phase, r);
}

const char *emit_array_name(Emit *e, Access a)
{
    if (!e->own[a.mem] || e->taken[a.mem])
        return emit_name(e, a.name);
    e->taken[a.mem] = true;
    return e->own[a.mem];
}

enum { LONGEST = 7 };                       /* operations in one expression: a longer one gets a
                                             * name */

static void weigh(Emit *e)
{
    for (int i = 0; i < e->st->nbody; i++) {
        Ref r = e->st->body[i];
        e->weight[r] = 1;
        for (int k = 0; k < e->g->n[r].nargs; k++) {
            Ref a = e->g->n[r].arg[k];
            if (emit_inlined(e, a))
                e->weight[r] += e->weight[a];
        }
    }
}

static void count_uses(Emit *e)
{
    const Stage *s = e->st;
    for (int i = 0; i < s->nbody; i++)
        for (int k = 0; k < e->g->n[s->body[i]].nargs; k++)
            e->uses[e->g->n[s->body[i]].arg[k]]++;
    for (int i = 0; i < s->nstore; i++)
        e->uses[s->store[i].val]++;
    for (int i = 0; i < s->nfold; i++) {
        const Node *n = &e->g->n[s->fold[i].val];
        bool again = false;                     /* folds of one value share its buffer */
        Ref x = n->arg[is_global(n) ? s->variant : 0];
        for (int j = 0; j < i; j++)
            again = again || (!is_global(n) && e->g->n[s->fold[j].val].arg[0] == x);
        e->uses[x] += !again;
    }
}

/* Words that C and C++ reserve: a package must compile as either. */
static const char *const language[] = {"alignas",
                                       "alignof",
                                       "and",
                                       "and_eq",
                                       "asm",
                                       "auto",
                                       "bitand",
                                       "bitor",
                                       "bool",
                                       "break",
                                       "case",
                                       "catch",
                                       "char",
                                       "class",
                                       "compl",
                                       "const",
                                       "const_cast",
                                       "constexpr",
                                       "continue",
                                       "decltype",
                                       "default",
                                       "delete",
                                       "do",
                                       "double",
                                       "dynamic_cast",
                                       "else",
                                       "enum",
                                       "explicit",
                                       "export",
                                       "extern",
                                       "false",
                                       "float",
                                       "for",
                                       "friend",
                                       "goto",
                                       "if",
                                       "inline",
                                       "int",
                                       "long",
                                       "mutable",
                                       "namespace",
                                       "new",
                                       "noexcept",
                                       "not",
                                       "not_eq",
                                       "nullptr",
                                       "operator",
                                       "or",
                                       "or_eq",
                                       "private",
                                       "protected",
                                       "public",
                                       "register",
                                       "reinterpret_cast",
                                       "restrict",
                                       "return",
                                       "short",
                                       "signed",
                                       "sizeof",
                                       "static",
                                       "static_assert",
                                       "static_cast",
                                       "struct",
                                       "switch",
                                       "template",
                                       "this",
                                       "thread_local",
                                       "throw",
                                       "true",
                                       "try",
                                       "typedef",
                                       "typeid",
                                       "typename",
                                       "union",
                                       "unsigned",
                                       "using",
                                       "virtual",
                                       "void",
                                       "volatile",
                                       "wchar_t",
                                       "char8_t",
                                       "char16_t",
                                       "char32_t",
                                       "concept",
                                       "consteval",
                                       "constinit",
                                       "co_await",
                                       "co_return",
                                       "co_yield",
                                       "requires",
                                       "typeof_unqual",
                                       "while",
                                       "xor",
                                       "xor_eq",
                                       "typeof",
                                       "linux",
                                       "unix",
                                       "errno",
                                       "stdin",
                                       "stdout",
                                       "stderr",
                                       "complex",
                                       "imaginary",
                                       "noreturn",
                                       "assert",
                                       "I",
                                       "math_errhandling",
                                       "offsetof",
                                       "half",
                                       "half2",
                                       "fabs",
                                       "fabsf",
                                       "sqrt",
                                       "sqrtf",
                                       "fma",
                                       "fmaf",
                                       NULL};

static const char *slot(Arena *a, const char *prefix, const char *name)
{
    char *s = arena_printf(a, "%sat_%s", prefix ? prefix : "", name);
    for (char *c = s; *c; c++)
        *c = *c == '.' ? '_' : *c;
    return s;
}

typedef struct { const Access *v; int n; } Accesses;
enum { NACCESSES = 4 };
static void accesses_of(const Stage *s, Accesses out[NACCESSES])
{
    out[0] = (Accesses){s->load, s->nload};
    out[1] = (Accesses){s->fin, s->nfin};
    out[2] = (Accesses){s->store, s->nstore};
    out[3] = (Accesses){s->fold, s->nfold};
}

/* Reserves names that no value of the stage may take: the enumerators of arrays, and the names of
 * arrays and hyperparameters of the rule. */
static void claim(Emit *e)
{
    const Plan *p = e->plan;
    Accesses all[NACCESSES];
    accesses_of(e->st, all);
    int n = 0;
    for (int k = 0; k < NACCESSES; k++)
        for (int i = 0; i < all[k].n; i++, n++)
            if (!e->array_slot)
                used_entry(e, slot(e->arena, e->prefix, all[k].v[i].name))->count = 1;
            else if (!e->array_slot[all[k].v[i].mem])
                e->array_slot[all[k].v[i].mem] = n + 1;
    if (e->array_slot)
        used_entry(e, "arrays")->count = 1;
    for (int k = 0; k < p->nmem; k++)
        if (p->mem[k].kind != MEM_TEMP && p->mem[k].kind != MEM_PART)
            e->own[k] = emit_name(e, p->mem[k].name);
    for (int k = 0; k < p->rule->nhyper; k++)
        e->hyper[k] = emit_name(e, p->rule->hyper[k].name);
}

void emit_begin(Emit *e, const Target *t, const Plan *p, StageAt at, Arena *a, const char *prefix)
{
    *e = (Emit){.target = t,
                .plan = p,
                .phase = &at.entry->phase[at.phase],
                .st = at.stage,
                .arena = a,
                .prefix = prefix};
    e->g = e->phase->g;
    e->wide = dom_wide(stage_info[at.stage->kind].dom);
    for (int k = 0; k < NEMITHOLE; k++)
        e->at[k].arena = a;
    e->own = NEWS(a, const char *, p->nmem + 1);
    e->ptr = NEWS(a, const char *, p->nmem + 1);
    e->transposed = NEWS(a, const char *, p->nmem + 1);
    e->array_slot = at.stage->shared ? NEWS(a, int, p->nmem + 1) : NULL;
    e->taken = NEWS(a, bool, p->nmem + 1);
    e->hyper = NEWS(a, const char *, p->rule->nhyper + 1);
    e->text = NEWS(a, const char *, e->g->len + 1);
    e->uses = NEWS(a, int, e->g->len + 1);
    e->weight = NEWS(a, int, e->g->len + 1);
    for (const char *const *word = t->reserved; *word; word++)
        used_entry(e, *word)->count = 1;
    for (const char *const *word = language; *word; word++)
        used_entry(e, *word)->count = 1;
    claim(e);
    count_uses(e);
    weigh(e);
}

const char *emit_joined(Emit *e, const char *a, const char *b)
{
    return emit_name(e, arena_printf(e->arena, "%s_%s", a, b));
}

/* Changes printf's 1e-08 and 1e+08 to 1e-8 and 1e8. */
static void plain_exponent(char *s)
{
    char *e = strchr(s, 'e'), *from;
    if (!e)
        return;
    e += e[1] == '-' ? 2 : 1;
    for (from = e; *from == '+' || (*from == '0' && from[1]); from++)
        ;
    memmove(e, from, strlen(from) + 1);
}

const char *emit_number(const Emit *e, double x)
{
    bool f32 = emit_suffix(e)[0] == 'f';
    if (f32)
        x = (double)(float)x;
    if (isnan(x))
        return f32 ? "optc_frombitsf(0x7fc00000u)" : "optc_frombits(0x7ff8000000000000ull)";
    if (isinf(x))
        return f32 ? (x < 0 ? "optc_frombitsf(0xff800000u)" : "optc_frombitsf(0x7f800000u)")
                   : (x < 0 ? "optc_frombits(0xfff0000000000000ull)"
                            : "optc_frombits(0x7ff0000000000000ull)");
    char s[40];
    for (int prec = 1; prec <= 17; prec++) {
        snprintf(s, sizeof s, "%.*g", prec, x);
        if (f32 ? strtof(s, NULL) == (float)x : strtod(s, NULL) == x)
            break;
    }
    plain_exponent(s);
    const char *dot = strpbrk(s, ".e") ? "" : ".0";
    const char *t = arena_printf(e->arena, "%s%s%s", s, dot, f32 ? "f" : "");
    return x < 0 || (x == 0 && signbit(x)) ? arena_printf(e->arena, "(%s)", t) : t;
}

bool emit_inlined(const Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    return e->uses[r] == 1 && !n->name && !is_leaf(n) && !is_red(n) && e->weight[r] &&
           e->weight[r] <= LONGEST;
}

/* 1 / sqrt(x) of elements on a GPU, in f32; no other value has the root. */
static bool is_rsqrt(const Emit *e, const Node *n)
{
    const Node *g = e->g->n;
    return n->op == OP_DIV && g[n->arg[1]].op == OP_SQRT && !e->text[n->arg[1]] &&
           g[n->arg[0]].op == OP_CONST && g[n->arg[0]].imm == 1 && e->target->gpu &&
           is_elem(e->st->kind) && emit_suffix(e)[0] == 'f';
}

/* Binding strength of an expression, from ops.def; names bind tightest. */
static int binding(const Emit *e, Ref r)
{
    int binds = e->text[r] || is_rsqrt(e, &e->g->n[r]) ? 9 : op_info[e->g->n[r].op].binds;
    return binds ? binds : binding(e, e->g->n[r].arg[0]);
}

static const char *operand(Emit *e, Ref r, int least)
{
    const Node *n = &e->g->n[r];
    if (e->text[r])
        return e->text[r];
    if (n->op == OP_CONST)
        return n->ty == BOOL ? (n->imm != 0 ? "1" : "0") : emit_number(e, n->imm);
    const char *x = emit_expr(e, r);
    return binding(e, r) < least ? arena_printf(e->arena, "(%s)", x) : x;
}

/* A random draw: the generator's call with the value's index in its domain. */
static const char *draw(Emit *e, const Node *n)
{
    static const char *const first[NDOM] = {[SLICE] = "self->first_slice + ",
                                            [ROW] = "self->first_row + ",
                                            [COL] = "self->first_col + ",
                                            [ELEM] = "self->first + "};
    const char *at = !dom_inside((Dom)n->dom)          ? "0"
                     : e->runs && (Dom)n->dom == ELEM ? "optc_nth(self, offset + i)"
                     : arena_printf(e->arena, "%soffset + i", first[n->dom] ? first[n->dom] : "");
    /* layout.c */
    const char *size = dom_of_block((Dom)n->dom) ? " + 256u * (unsigned)self->first" : "";
    return arena_printf(
        e->arena, "optc_%s%s(self->hyper[%d], self->hyper[0]%s, (unsigned)self->id, %du%s, %s)",
        n->op == OP_RANDOM ? "uniform" : "normal", emit_suffix(e), n->sym + 1,
        e->t_ahead ? " + 1.0" : "", (int)n->imm, size, at);
}

/* A value after a store to the state's type and a load from it. */
static const char *stored(Emit *e, const Node *n)
{
    const char *x = operand(e, n->arg[0], 0);
    Type t = e->plan->mem[plan_mem_of_state(e->plan, n->sym)].type;
    if (dom_wide((Dom)n->dom) || t == e->plan->real)
        return x;
    const char *s = *type_info[t].store ? emit_call_text(e->arena, type_info[t].store, x)
                                        : arena_printf(e->arena, "(%s)(%s)", type_info[t].c, x);
    return emit_call_text(e->arena, type_info[t].load, s);
}

/* True if a NaN of this value becomes a NaN of a quotient that every element computes. */
static bool reaches_quotient(const Emit *e, Ref r)
{
    bool found = false;
    for (int i = 0; i < e->st->nbody; i++)
        if (e->g->n[e->st->body[i]].op == OP_WHERE)
            return false;
    for (int i = 0; i < e->st->nbody && !found; i++) {
        const Node *n = &e->g->n[e->st->body[i]];
        bool uses = n->arg[0] == r || (op_info[n->op].arity > 1 && n->arg[1] == r);
        bool keeps = n->op == OP_ADD || n->op == OP_SUB || n->op == OP_MUL;
        found = uses && (n->op == OP_DIV || (keeps && reaches_quotient(e, e->st->body[i])));
    }
    return found;
}

/* The form of an operation. Kernels with several powers call a function for them: the code of each
 * has some 200 instructions, and with copies for every element of a vector the kernel exceeds the
 * instruction cache. */
static const char *form_of(const Emit *e, Op op)
{
    int powers = 0;
    for (int i = 0; i < e->st->nbody && op == OP_POW && e->target->gpu; i++)
        powers += e->g->n[e->st->body[i]].op == OP_POW;
    return powers > 1 && is_elem(e->st->kind) ? "optc_call_pow~(%a, %b)" : op_info[op].form;
}

const char *emit_expr(Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    if (e->text[r])
        return e->text[r];
    if (n->op == OP_CONST)
        return operand(e, r, 0);
    if (n->op == OP_RANDOM || n->op == OP_NORMAL)
        return draw(e, n);
    if (n->op == OP_STORED)
        return stored(e, n);
    if (e->quick && n->op == OP_SQRT)
        return arena_printf(e->arena, "optc_root<%s>(%s, odd, exact)",
                            reaches_quotient(e, r) ? "false" : "true", operand(e, n->arg[0], 0));
    if (e->quick && n->op == OP_DIV)
        return arena_printf(e->arena, "optc_quotient(%s, %s, odd, exact)", operand(e, n->arg[0], 0),
                            operand(e, n->arg[1], 0));
    if (is_rsqrt(e, n))
        return arena_printf(e->arena, "optc_rsqrtf(%s)", operand(e, e->g->n[n->arg[1]].arg[0], 0));
    Buf b = {.arena = e->arena};
    const char *form = form_of(e, n->op);
    int mine = binding(e, r), tight = mine == 1 || mine == 5 ? 9 : mine;
    for (const char *f = form; *f; f++) {
        /* The right operand of an infix form must bind tighter than the form: a - (b - c). An
         * argument may be anything.
         */
        if (*f == '~')
            buf_puts(&b, emit_suffix(e));
        else if (*f == '%' && f[1] >= 'a' && f[1] <= 'c')
            buf_puts(&b, operand(e, n->arg[f[1] - 'a'],
                                 mine == 9   ? 0
                                 : f == form ? tight
                                             : tight + 1)),
                f++;
        else
            buf_add(&b, f, 1);
    }
    return buf_text(&b);
}

const char *emit_call_text(Arena *a, const char *fn, const char *x)
{
    return *fn ? arena_printf(a, "%s(%s)", fn, x) : x;
}

/* ---- arrays ---- */
const char *emit_array_number(Emit *e, Access a)
{
    const Mem *m = &e->plan->mem[a.mem];
    const State *s = m->kind == MEM_STATE ? &e->plan->rule->state[m->sym] : NULL;
    const char *number = e->array_slot
        ? arena_printf(e->arena, "%s[%d]", e->target->array_slot, e->array_slot[a.mem] - 1)
        : slot(e->arena, e->prefix, a.name);
    if (!s || !s->rotates)
        return number;
    return arena_printf(e->arena, "%s + optc_ring(self->hyper[0]%s, %d, %d)", number,
                        e->t_ahead ? " + 1.0" : "", s->age, s->ring);
}

const char *emit_array(Emit *e, Access a, bool writable)
{
    return arena_printf(e->arena, "(%s%s *)self->mem[%s]", writable ? "" : "const ",
                        type_info[e->plan->mem[a.mem].type].c, emit_array_number(e, a));
}

const char *emit_array_param(const Emit *e, const char *param)
{
    return e->array_slot ? param : "";
}

static int by_number(const void *x, const void *y)
{
    const Access *a = x, *b = y;
    return a->mem != b->mem ? (a->mem > b->mem) - (a->mem < b->mem) : strcmp(a->name, b->name);
}

void emit_array_numbers(Buf *b, const Plan *p, const EmitOptions *o)
{
    enum { WIDTH = 110 };
    Access *v = NULL;
    int n = 0, cap = 0;
    Accesses all[NACCESSES];
    for (int f = 0; f < p->nfn; f++) {
        if (!emit_selects(p, o, f) || plan_at(p, f).stage->shared)
            continue;
        accesses_of(plan_at(p, f).stage, all);
        for (int k = 0; k < NACCESSES; k++)
            for (int i = 0; i < all[k].n; i++)
                PUSH(b->arena, v, n, cap) = all[k].v[i];
    }
    if (!n)
        return;
    qsort(v, (size_t)n, sizeof *v, by_number);
    buf_puts(b, "/* Arrays by number. */\nenum {\n   ");
    size_t line = b->len - 3;
    for (int i = 0; i < n; i++) {
        if (i && !by_number(&v[i - 1], &v[i]))
            continue;
        const char *item =
            arena_printf(b->arena, " %s = %d,", slot(b->arena, o->prefix, v[i].name), v[i].mem);
        if (b->len - line + strlen(item) > WIDTH) {
            buf_puts(b, "\n   ");
            line = b->len - 3;
        }
        buf_puts(b, item);
    }
    /* without the last comma, which NVRTC's default C++ warns about */
    b->s[b->len - 1] = '\n';
    buf_puts(b, "};\n\n");
}

bool emit_selects(const Plan *p, const EmitOptions *o, int fn)
{
    const Stage *s = plan_at(p, fn).stage;
    return s && (!o->only || s == o->only) && (!o->select || o->select[fn]);
}
