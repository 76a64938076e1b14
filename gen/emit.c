/* Names and expressions. Values keep the spec's names; what is used once and has no name is written where it is used. */
#include "emit.h"
#include "template.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *emit_real(const Emit *e) { return e->wide ? "double" : type_info[e->plan->real].c; }
const char *emit_suffix(const Emit *e) { return e->wide || e->plan->real == T_F64 ? "" : "f"; }
const char *emit_type_suffix(Type t) { return t == T_F64 ? "" : "f"; }

/* The entry of an identifier, made if it is new (count 0). Names of one loop local come by the thousand: a hash table. */
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
    while (e->used[h & (uint64_t)(e->used_cap - 1)].name && strcmp(e->used[h & (uint64_t)(e->used_cap - 1)].name, s))
        h++;
    Used *u = &e->used[h & (uint64_t)(e->used_cap - 1)];
    if (!u->name) {
        u->name = arena_strdup(e->arena, s);
        e->nused++;
    }
    return u;
}

const char *emit_name(Emit *e, const char *want)
{
    char base[80];
    bool ours = !strncasecmp(want, "optc", 4) || want[0] == '_';       /* the runtime's and the compiler's own names */
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

const char *node_label(const Plan *p, const Graph *g, Ref r)
{
    const Node *n = &g->n[r];
    switch (n->op) {
    case OP_P: return "p";
    case OP_G: return "g";
    case OP_STEP: return "t";
    case OP_HYPER: return p->rule->hyper[n->sym].name;
    case OP_STATE: return p->rule->state[n->sym].name;
    case OP_INPUT: return p->rule->input[n->sym].name;
    case OP_COUNT: return n->from == ELEM ? "numel" : n->from == ROW ? "nrows" : "ncols";
    default: return n->name;
    }
}

enum { LONGEST = 7 };                       /* operations in one expression: more get a name of their own */

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

/* What C and C++ use themselves: a package compiles as either. */
static const char *const language[] = {
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char", "class", "compl", "const", "const_cast", "constexpr", "continue", "decltype",
    "default", "delete", "do", "double", "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int", "long", "mutable",
    "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected", "public", "register", "reinterpret_cast", "restrict", "return", "short", "signed",
    "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template", "this", "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using",
    "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq", "typeof", "linux", "unix", "fabs", "fabsf", "sqrt", "sqrtf", "fma", "fmaf", NULL};

void emit_begin(Emit *e, const Plan *p, const Phase *ph, const Stage *s, Arena *a, const char *const *reserved)
{
    memset(e, 0, sizeof *e);
    e->plan = p;
    e->phase = ph;
    e->st = s;
    e->g = ph->g;
    e->arena = a;
    e->wide = s->kind == S_GROUP || s->kind == S_TENSOR || s->kind == S_SLICE;
    e->text = NEWS(a, const char *, e->g->len + 1);
    e->uses = NEWS(a, int, e->g->len + 1);
    e->weight = NEWS(a, int, e->g->len + 1);
    for (; *reserved; reserved++)
        used_entry(e, *reserved)->count = 1;
    for (const char *const *word = language; *word; word++)
        used_entry(e, *word)->count = 1;
    count_uses(e);
    weigh(e);
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
                   : (x < 0 ? "optc_frombits(0xfff0000000000000ull)" : "optc_frombits(0x7ff0000000000000ull)");
    char s[40];
    for (int prec = 1; prec <= 17; prec++) {
        snprintf(s, sizeof s, "%.*g", prec, x);
        if (f32 ? strtof(s, NULL) == (float)x : strtod(s, NULL) == x)
            break;
    }
    const char *dot = strpbrk(s, ".e") ? "" : ".0";
    const char *t = arena_printf(e->arena, "%s%s%s", s, dot, f32 ? "f" : "");
    return x < 0 || (x == 0 && signbit(x)) ? arena_printf(e->arena, "(%s)", t) : t;
}

static const char *count_text(const Node *n)
{
    if (n->dom == GROUP)
        return n->from == ELEM ? "self->total" : "self->ntensors";
    if (n->dom == TENSOR)
        return n->from == ELEM ? "self->n" : n->from == ROW ? "self->slices * self->rows" : n->from == COL ? "self->slices * self->cols" : "self->slices";
    if (n->dom == SLICE)
        return n->from == ELEM ? "self->rows * self->cols" : n->from == ROW ? "self->rows" : "self->cols";
    return n->dom == ROW ? "self->cols" : "self->rows";
}

/* Hyperparameters, the step and sizes: read once, before the loop, rounded once to the stage's precision. */
void emit_scalars(Emit *e, Buf *b, const char *indent)
{
    const char *real = emit_real(e), *cast = e->wide ? "" : arena_printf(e->arena, "(%s)", real);
    for (Ref r = 0; r < e->g->len; r++) {
        const Node *n = &e->g->n[r];
        if (!e->uses[r] || (n->op != OP_HYPER && n->op != OP_STEP && n->op != OP_COUNT))
            continue;
        const char *name = emit_name(e, node_label(e->plan, e->g, r));
        e->text[r] = name;
        if (n->op == OP_COUNT)
            buf_printf(b, "%sconst %s %s = (%s)(%s);\n", indent, real, name, real, count_text(n));
        else
            buf_printf(b, "%sconst %s %s = %s%sself->hyper[%d]%s;\n", indent, real, name, cast, n->op == OP_STEP && e->t_ahead ? "(" : "", n->op == OP_STEP ? 0 : n->sym + 1,
                       n->op == OP_STEP && e->t_ahead ? " + 1.0)" : "");
    }
}

bool emit_inlined(const Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    return e->uses[r] == 1 && !n->name && !is_leaf(n) && !is_red(n) && e->weight[r] && e->weight[r] <= LONGEST;
}

/* How tightly an operation's emitted form binds, as C has it; calls and names bind tightest. */
static int binding(const Emit *e, Ref r)
{
    if (e->text[r])
        return 9;
    switch (e->g->n[r].op) {
    case OP_WHERE: case OP_BOTH: case OP_EITHER: return 1;
    case OP_LT: case OP_LE: case OP_EQ: case OP_NE: return 2;
    case OP_ADD: case OP_SUB: return 3;
    case OP_MUL: case OP_DIV: return 4;
    case OP_NEG: case OP_ISNT: return 5;
    case OP_COPY: return binding(e, e->g->n[r].arg[0]);
    default: return 9;
    }
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

/* Draws: which generator call, by the value's place in its domain. */
static const char *draw(Emit *e, const Node *n)
{
    static const char *const at[NDOM] = {[TENSOR] = "0", [SLICE] = "offset + i", [ROW] = "offset + i", [COL] = "offset + i", [ELEM] = "self->first + offset + i"};
    return arena_printf(e->arena, "optc_%s%s(self->hyper[%d], self->hyper[0]%s, (unsigned)self->id, %du, %s)",
                        n->op == OP_RANDOM ? "uniform" : "normal", emit_suffix(e), n->sym + 1, e->t_ahead ? " + 1.0" : "", (int)n->imm, at[n->dom]);
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
    Buf b = {.arena = e->arena};
    const char *form = op_info[n->op].form;
    int mine = binding(e, r), tight = mine == 1 || mine == 5 ? 9 : mine;
    for (const char *f = form; *f; f++) {
        /* The right operand of an infix form must bind tighter than the form: a - (b - c). An argument needs nothing. */
        if (*f == '~')
            buf_puts(&b, emit_suffix(e));
        else if (*f == '%' && f[1] >= 'a' && f[1] <= 'c')
            buf_puts(&b, operand(e, n->arg[f[1] - 'a'], mine == 9 ? 0 : f == form ? tight : tight + 1)), f++;
        else
            buf_add(&b, f, 1);
    }
    return buf_text(&b);
}

const char *emit_form(Emit *e, const char *form, char hole, const char *text)
{
    Buf b = {.arena = e->arena};
    for (; *form; form++) {
        if (*form == '%' && form[1] == hole) {
            buf_puts(&b, text);
            form++;
        } else {
            buf_add(&b, form, 1);
        }
    }
    return buf_text(&b);
}

/* ---- what every target says of a stage ---- */
const char *emit_array(Emit *e, int mem, bool writable)
{
    return arena_printf(e->arena, "(%s%s *)self->mem[%d]", writable ? "" : "const ", type_info[e->plan->mem[mem].type].c, mem);
}

void emit_define(Emit *e, Buf *b, const char *indent, Ref r, const char *name, const char *value)
{
    bool truth = e->g->n[r].ty == BOOL;
    buf_printf(b, "%sconst %s %s = %s%s;\n", indent, truth ? "int" : emit_real(e), name, value, truth ? " != 0" : "");
    e->text[r] = name;
}

bool emit_stores(const Stage *s, int mem)
{
    for (int i = 0; i < s->nstore; i++)
        if (s->store[i].mem == mem)
            return true;
    return false;
}

const char *emit_red_kind(const Node *n)
{
    switch (n->op) {
    case OP_RMAX: case OP_GMAX: return "max";
    case OP_RMIN: case OP_GMIN: return "min";
    default: return "sum";
    }
}

const char *emit_tile(StageKind k) { return k == S_BAND ? "BAND" : "TILE"; }

const char *emit_parts_per_row(const Mem *m) { return m->by == S_BAND ? "optc_up(self->cols, OPTC_BAND_COLS)" : "optc_up(self->cols, OPTC_TILE_COLS)"; }

const char *emit_parts_per_slice(const Mem *m)
{
    switch (m->from) {
    case ELEM: return m->by == S_BAND ? "optc_up(self->rows, OPTC_BAND_ROWS) * optc_up(self->cols, OPTC_BAND_COLS)" : "optc_up(self->rows, OPTC_TILE_ROWS) * optc_up(self->cols, OPTC_TILE_COLS)";
    case ROW: return "optc_up(self->rows, OPTC_SEG)";
    default: return "optc_up(self->cols, OPTC_SEG)";
    }
}

const char *emit_parts_of_tensor(Arena *a, const Mem *m)
{
    if (m->from == ELEM && m->by == S_FLAT)
        return "optc_up(self->n, OPTC_SEG)";
    if (m->from == SLICE)
        return "optc_up(self->slices, OPTC_SEG)";
    return arena_printf(a, "self->slices * %s", emit_parts_per_slice(m));
}

/* Names for values about to be stored: m_new for what state m becomes. */
const char *emit_new_name(Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    if (n->name)
        return n->name;
    for (int i = 0; i < e->st->nstore; i++) {
        const Mem *m = &e->plan->mem[e->st->store[i].mem];
        if (e->st->store[i].val == r && m->kind != MEM_TEMP)
            return arena_printf(e->arena, "%s_new", m->name);
    }
    return arena_printf(e->arena, "x%d", r);
}

const char *emit_stage_name(char buf[MOST_STAGE_NAME], const Plan *p, const char *entry, int mask, const Stage *s)
{
    char phase[24] = "";
    if (p->nperiod)
        snprintf(phase, sizeof phase, "_phase%d", mask);
    snprintf(buf, MOST_STAGE_NAME, "%.40s%s_%d_%s%s%.40s", entry, phase, s->fn, stage_name[s->kind], s->variant ? "_" : "", s->variant ? p->rule->variant[s->variant].name : "");
    return buf;
}

const char *emit_prefixed(Arena *a, const char *prefix, const Plan *p, const char *entry, int mask, const Stage *s)
{
    char name[MOST_STAGE_NAME];
    return arena_printf(a, "%s%s", prefix ? prefix : "", emit_stage_name(name, p, entry, mask, s));
}

static void name_list(Buf *b, const Plan *p, const Access *v, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        buf_printf(b, "%s %s", i ? "" : what, p->mem[v[i].mem].name);
}

const char *emit_stage_comment(Arena *a, const Plan *p, const Stage *s)
{
    Buf b = {.arena = a};
    static const char *const what[NSTAGEKIND] = {"Once a group", "Once a tensor", "Once a matrix", "Once a row", "Once a column",
                                                 "One pass over the elements", "One pass over tiles of each matrix", "One pass over bands of each matrix"};
    buf_printf(&b, "/* %s:", what[s->kind]);
    name_list(&b, p, s->load, s->nload, " reads");
    name_list(&b, p, s->store, s->nstore, s->nload ? "; writes" : " writes");
    name_list(&b, p, s->fold, s->nfold, "; folds into");
    buf_printf(&b, ". %d + %d bytes. */", s->bytes_read, s->bytes_written);
    return buf_text(&b);
}

/* Free text inside a comment must not end it, whatever the compiler makes of trigraphs and spliced lines: only bytes that can do
 * nothing are kept. */
const char *emit_plain(Arena *a, const char *s)
{
    char *t = arena_strdup(a, s);
    for (char *c = t; *c; c++)
        if (*c < 32 || *c > 126 || strchr("*\\?", *c))
            *c = ' ';
    return t;
}

/* A file's name inside the quotes of a directive. */
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
    if (*r->cite)
        buf_printf(&b, " * %s\n", emit_plain(a, r->cite));
    if (r->noption)
        buf_puts(&b, " * options:");
    for (int i = 0; i < r->noption; i++)
        buf_printf(&b, " %s=%s", r->option[i].name, emit_plain(a, r->option[i].value));
    buf_printf(&b, "%s * types: p %s, g %s, state %s", r->noption ? "\n" : "", type_info[p->p].name, type_info[p->g].name, type_info[p->state].name);
    return buf_text(&b);
}

const char *emit_title(Arena *a, const Rule *r) { return emit_plain(a, *r->with ? arena_printf(a, "%s with %s", r->name, r->with) : r->name); }

bool emit_uses(const char *code, const char *const *names)
{
    for (; *names; names++)
        if (strstr(code, *names))
            return true;
    return false;
}

/* Only the parts of the shared source that the stages call. */
void emit_shared_math(Buf *b, const char *code)
{
    static const char *const f32[] = {"optc_expf(", "optc_expm1f(", "optc_logf(", "optc_log1pf(", "optc_powf(", "optc_tanhf(", "optc_sinf(",
                                      "optc_cosf(", "optc_atan2f(", "optc_cbrtf(", NULL};
    static const char *const f64[] = {"optc_exp(", "optc_expm1(", "optc_log(", "optc_log1p(", "optc_pow(", "optc_tanh(", "optc_sin(",
                                      "optc_cos(", "optc_atan2(", "optc_cbrt(", NULL};
    static const char *const draws[] = {"optc_uniform", "optc_normal", NULL};
    static const char *const small[] = {"optc_from_", "optc_to_", NULL};
    bool rnd = emit_uses(code, draws);
    buf_puts(b, template_text("math.h"));
    if (rnd || emit_uses(code, f32))
        buf_puts(b, template_text("math_f32.h"));
    if (rnd || emit_uses(code, f64))
        buf_puts(b, template_text("math_f64.h"));
    if (rnd)
        buf_puts(b, template_text("random.h"));
    if (emit_uses(code, small))
        buf_puts(b, template_text("types.h"));
}


/* The command that makes it again, free of paths. */
static const char *own_command(Arena *a, const Gen *g, const char *target)
{
    Buf b = {.arena = a};
    const Rule *r = g->rule;
    int given = 0;
    buf_printf(&b, "optc emit --target %s %s", target, r->name);
    if (*r->with)
        buf_printf(&b, " --with '%s'", r->with);
    for (int i = 0; i < r->noption; i++)
        if (!strchr(r->option[i].name, '.'))
            buf_printf(&b, "%s%s=%s", given++ ? "," : " --options ", r->option[i].name, r->option[i].value);
    buf_printf(&b, " --type %s --grad-type %s --state-type %s", type_info[g->plan->p].name, type_info[g->plan->g].name, type_info[g->plan->state].name);
    return buf_text(&b);
}

bool emit_key(const char *source, char hex[33])
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
        hash_hex(hash128(kept, b.len), hex);
    buf_free(&b);
    return kept != NULL;
}

typedef struct { const char *name; bool (*emit)(const Gen *g, const EmitOptions *o, Arena *a, Buf *out); } TargetEmitter;
static const TargetEmitter targets[] = {{"c", emit_c}, {"cuda", emit_cuda}};
enum { NTARGETS = sizeof targets / sizeof *targets };
const char *const gen_targets[] = {"c", "cuda", NULL};

/* Everything but the result lives in an arena of the call; memory that ends anywhere ends here. */
char *gen_emit(const Gen *g, const EmitOptions *o, Diag *d)
{
    jmp_buf out;
    Arena scratch = {.out = &out};
    char *volatile text = NULL;
    LocaleMark was = locale_plain();
    int t = 0;
    while (t < NTARGETS && strcmp(o->target, targets[t].name))
        t++;
    if (t == NTARGETS) {
        diag_set(d, NULL, 0, NULL, "unknown target '%s' (known: c, cuda)", o->target);
    } else if (setjmp(out)) {
        diag_set(d, NULL, 0, NULL, "out of memory");
    } else {
        Buf b = {.arena = &scratch};
        EmitOptions with = *o;
        with.command = o->command ? o->command : own_command(&scratch, g, o->target);
        if (!targets[t].emit(g, &with, &scratch, &b))
            diag_set(d, NULL, 0, NULL, "a template misses a section or names an unknown hole");
        else if (!(text = buf_take(&b)))
            diag_set(d, NULL, 0, NULL, "out of memory");
    }
    locale_back(was);
    arena_free(&scratch);
    return text;
}
