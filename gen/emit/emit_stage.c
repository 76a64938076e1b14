/* Parts of a stage that all targets share: pointers, loads, operations, stores. Text is appended to
 * the holes of the stage's template, which indents it. */
#include "gen/emit/emit.h"

#include <math.h>
#include <string.h>

const char emit_line_mark[] = "#line 0\n";

void emit_put(Emit *e, EmitHole to, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&e->at[to], fmt, ap);
    va_end(ap);
}

static void fill_section(Emit *e, Buf *to, const char *section, const Hole *h, int n)
{
    const Target *t = e->target;
    const char *file =
        t->statements && template_has(t->statements, section) ? t->statements : t->templates;
    if (!template_fill(to, file, section, h, n))
        e->broken = true;
}

void emit_section(Emit *e, EmitHole to, const char *section, const Hole *h, int n)
{
    fill_section(e, &e->at[to], section, h, n);
}

const char *emit_filled(Emit *e, const char *section, const Hole *h, int n)
{
    Buf b = {.arena = e->arena};
    fill_section(e, &b, section, h, n);
    return buf_text(&b);
}

/* The same as stagger_slot (program.h), for the step of the binding: the cohort's t plus its
 * lag. */
static const char *slot_text(Emit *e, const Node *n)
{
    const Rule *r = e->plan->rule;
    Stagger s = r->state[n->sym].slots;
    const char *t = arena_printf(e->arena, "(long long)(self->hyper[0] + self->hyper[%d]%s)",
                                 r->nhyper + 1, e->t_ahead ? " + 1.0" : "");
    if (s.ahead)
        t = arena_printf(e->arena, "(%s + %d)", t, s.ahead);
    if (s.of > 1)
        t = arena_printf(e->arena, "%s / %d", t, s.of);
    const char *slot = arena_printf(e->arena, "(double)(%s %% %d)", t, s.every);
    return s.first ? arena_printf(e->arena, "(%s == 1 ? -1.0 : %s)", t, slot) : slot;
}

/* Hyperparameters, the step and sizes are read before the loop and rounded once to the stage's
 * precision. */
void emit_scalars(Emit *e)
{
    const char *real = emit_real(e), *cast = e->wide ? "" : arena_printf(e->arena, "(%s)", real);
    for (Ref r = 0; r < e->g->len; r++) {
        const Node *n = &e->g->n[r];
        if (!e->uses[r] ||
            (n->op != OP_HYPER && n->op != OP_STEP && n->op != OP_SLOT && n->op != OP_COUNT))
            continue;
        const char *name =
            n->op == OP_HYPER ? e->hyper[n->sym] : emit_name(e, emit_value_name(e, r));
        bool ahead = n->op == OP_STEP && e->t_ahead;
        e->text[r] = name;
        if (n->op == OP_SLOT)
            emit_put(e, AT_HOISTED, "const %s %s = %s%s;\n", real, name, cast, slot_text(e, n));
        else if (n->op == OP_COUNT)
            emit_put(e, AT_HOISTED, "const %s %s = (%s)(%s);\n", real, name, real,
                     emit_count(e, n));
        else
            emit_put(e, AT_HOISTED, "const %s %s = %s%sself->hyper[%d]%s;\n", real, name, cast,
                     ahead ? "(" : "", n->op == OP_STEP ? 0 : n->sym + 1, ahead ? " + 1.0)" : "");
    }
}

int emit_holes(Emit *e, Hole *h)
{
    static const char *const name[NEMITHOLE] = {
#define EMIT_HOLE(ID, name) name,
        EMIT_HOLES(EMIT_HOLE)
#undef EMIT_HOLE
    };
    for (int k = 0; k < NEMITHOLE; k++)
        h[k] = (Hole){name[k], buf_text(&e->at[k])};
    return NEMITHOLE;
}

bool emit_stores(const Stage *s, int mem)
{
    for (int i = 0; i < s->nstore; i++)
        if (s->store[i].mem == mem)
            return true;
    return false;
}

/* ---- lengths, from the axes of domains ---- */
static const char *axis_field(Axis a)
{
    static const char *const field[NAXIS] = {NULL,
#define AXIS_FIELD(ID, field) #field,
                                             AXES(AXIS_FIELD)
#undef AXIS_FIELD
    };
    return field[a];
}

/* of: "whole_", or "" for the shard. The rank is the same for both. */
static const char *axis_text(Emit *e, Axis a, const char *of)
{
    return a == AXIS_ONE
               ? "1"
               : arena_printf(e->arena, "self->%s%s", a == AXIS_RANK ? "" : of, axis_field(a));
}

static const char *length(Emit *e, Dom d, const char *of)
{
    const Axis *x = dom_info[d].axis;
    if (dom_wide(d))
        return arena_printf(e->arena, "self->%sslices", of);
    if (x[0] == AXIS_ONE || x[1] == AXIS_ONE)
        return axis_text(e, x[0] == AXIS_ONE ? x[1] : x[0], of);
    return arena_printf(e->arena, "(%s * %s)", axis_text(e, x[0], of), axis_text(e, x[1], of));
}

const char *emit_length(Emit *e, Dom d) { return length(e, d, ""); }
/* The view of a block has no whole_ fields of its own: they are the tensor's. */
const char *emit_whole_length(Emit *e, Dom d)
{
    return length(e, d, dom_of_block(d) ? "" : "whole_");
}

const char *emit_axis(Emit *e, Dom d, int axis) { return axis_text(e, dom_info[d].axis[axis], ""); }

/* ---- indices ---- */
Dom emit_dom(const Emit *e, Access a)
{
    return a.transposed ? (Dom)e->g->n[a.val].dom : e->plan->mem[a.mem].dom;
}

bool emit_transposed(const Emit *e, Access a)
{
    return a.transposed && dom_square((Dom)e->g->n[a.val].dom);
}

/* The rows or columns of the whole matrix before a shard. */
static const char *axis_before(Axis a)
{
    return a == AXIS_ROWS   ? "optc_rows_inside(self) + "
           : a == AXIS_COLS ? "optc_cols_inside(self) + "
                            : "";
}

const char *emit_index_type(const Emit *e)
{
    const Axis *axis = dom_info[stage_info[e->st->kind].dom].axis;
    return axis[0] == axis[1] && axis[0] != AXIS_ONE ? "int" : "long long";
}

void emit_indices(Emit *e, EmitIndex down, EmitIndex across)
{
    const Axis *axis = dom_info[stage_info[e->st->kind].dom].axis;
    for (Ref r = 0; r < e->g->len; r++) {
        int op = e->g->n[r].op, k = op == OP_ACROSS;
        EmitIndex at = k ? across : down;
        if (!e->uses[r] || (op != OP_DOWN && op != OP_ACROSS))
            continue;
        e->text[r] = axis[k] == AXIS_ONE
                         ? emit_number(e, 0)
                         : arena_printf(e->arena, "(%s)((%s)(%s%s)%s)", emit_real(e),
                                        emit_index_type(e), axis_before(axis[k]), at.from, at.on);
    }
}

/* ---- folds of arrays ---- */
bool emit_folds_down(const Emit *e, Access f)
{
    return dom_info[e->g->n[f.val].dom].axis[0] == AXIS_ONE;
}

const char *emit_folded_from(Emit *e, Access f)
{
    Dom d = e->plan->mem[f.mem].dom;
    const char *array = emit_array(e, f, false);
    return emit_folds_down(e, f)
               ? arena_printf(e->arena, "%s + slice * %s + start", array, emit_length(e, d))
               : arena_printf(e->arena, "%s + offset * %s", array, emit_axis(e, d, 1));
}

const char *emit_folded_count(Emit *e, Access f)
{
    return emit_axis(e, e->plan->mem[f.mem].dom, emit_folds_down(e, f) ? 0 : 1);
}

const char *emit_block_values(Emit *e, Dom d, bool parts)
{
    const Axis *axis = dom_info[d].axis;
    return arena_printf(e->arena, "optc_of_blocks(self, %d, %d, %d, %d)", e->plan->rule->block,
                        (int)axis[0], (int)axis[1], (int)parts);
}

/* The number of values of n->from per value of n->dom, in the whole tensor: the product of the axes
 * that n->from has and n->dom does not have. */
const char *emit_count(Emit *e, const Node *n)
{
    const DomInfo *from = &dom_info[n->from], *to = &dom_info[n->dom];
    if (to->scope == SCOPE_GROUP)
        return n->from == ELEM ? "self->total" : "self->present";
    bool slices = dom_inside((Dom)n->from) && !dom_inside((Dom)n->dom),
         block = from->scope == SCOPE_BLOCK;
    if (slices && block)
        return emit_block_values(e, (Dom)n->from, false);
    if (n->from == ELEM && slices)
        return "self->whole_n";
    Buf b = {.arena = e->arena};
    buf_puts(&b, slices ? "self->whole_slices" : "");
    for (int k = 0; k < 2; k++)
        if (from->axis[k] != to->axis[k])
            buf_printf(&b, "%s%s", b.len ? " * " : "",
                       axis_text(e, from->axis[k], block ? "" : "whole_"));
    return b.len ? buf_text(&b) : "1";
}

/* ---- loads ---- */
void emit_define(Emit *e, EmitHole to, Ref r, const char *name, const char *value)
{
    bool truth = e->g->n[r].ty == BOOL;
    emit_put(e, to, "const %s %s = %s%s;\n", truth ? "int" : emit_real(e), name, value,
             truth ? " != 0" : "");
    e->text[r] = name;
}

const char *emit_loaded(Emit *e, Access a, const char *from)
{
    Type t = e->plan->mem[a.mem].type;
    bool narrow = !e->wide && t == T_F64 && e->plan->real == T_F32 && e->g->n[a.val].ty == NUM;
    const char *x = type_coded(t) ? from : emit_call_text(e->arena, type_info[t].load, from);
    return narrow ? arena_printf(e->arena, "(float)%s", x) : x;
}

/* Operands and results of products may be stored in another type than the rule computes in, wider
 * or narrower. Values of f64 rules must be double in every expression: in CUDA, sqrt of a float is
 * that of f32. */
const char *emit_entry(Emit *e, Access a, const char *from)
{
    const Mem *m = &e->plan->mem[a.mem];
    const char *x =
        type_coded(m->type) ? from : emit_call_text(e->arena, type_info[m->type].load, from);
    bool other = type_info[m->type].compute != e->plan->real && e->g->n[a.val].ty == NUM;
    bool cast = other && (m->kind == MEM_TEMP || e->plan->real == T_F64);
    return cast ? arena_printf(e->arena, "(%s)%s", emit_real(e), x) : x;
}

const char *emit_pointer(Emit *e, Access a, const char *offset)
{
    const char **known = &(emit_transposed(e, a) ? e->transposed : e->ptr)[a.mem];
    if (*known)
        return *known;
    const Mem *m = &e->plan->mem[a.mem];
    bool w = emit_stores(e->st, a.mem) || m->kind == MEM_PART;
    *known = emit_array_name(e, a);
    emit_put(e, AT_POINTERS, "%s%s *%s %s = %s%s;\n", w ? "" : "const ", type_info[m->type].c,
             e->target->restricted, *known, emit_array(e, a, w), offset);
    return *known;
}

void emit_load_scalar(Emit *e, EmitHole to, Access a, const char *index)
{
    const char *x =
        emit_loaded(e, a, arena_printf(e->arena, "(%s)[%s]", emit_array(e, a, false), index));
    emit_define(e, to, a.val, emit_array_name(e, a), x);
}

/* ---- operations ---- */
/* A #line directive for the value's line in the spec, so that compiler messages name it. */
void emit_line_directive(Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    if (e->cites && n->line > 0)
        emit_put(e, AT_BODY, "#line %d \"%s\"\n", n->line,
                 emit_file(e->arena, e->plan->rule->file[n->file]));
}

void emit_body(Emit *e)
{
    for (int i = 0; i < e->st->nbody; i++) {
        Ref r = e->st->body[i];
        if (emit_inlined(e, r))
            continue;
        emit_line_directive(e, r);
        const char *x = emit_expr(e, r), *name = emit_name(e, emit_value_name(e, r));
        emit_put(e, AT_BODY, "const %s %s = %s;\n", e->g->n[r].ty == BOOL ? "int" : emit_real(e),
                 name, x);
        e->text[r] = name;
    }
}

/* ---- folds and stores ---- */
Ref emit_folded(const Emit *e, Access f)
{
    const Node *n = &e->g->n[f.val];
    return n->arg[is_global(n) ? e->st->variant : 0];
}

/* The stores of a tensor that takes no part: the identity of each fold over all tensors. "": the
 * stage has no such fold. */
const char *emit_absent(Emit *e)
{
    Buf b = {.arena = e->arena};
    for (int i = 0; is_single(e->st->kind) && i < e->st->nfold; i++) {
        Access f = e->st->fold[i];
        Op op = (Op)e->g->n[f.val].op;
        buf_printf(&b, "    (%s)[self->id] = %s;\n", emit_array(e, f, true),
                   emit_number(e, op == OP_GMAX ? -INFINITY : op == OP_GMIN ? INFINITY : 0));
    }
    return b.len ? buf_text(&b) : "";
}

bool emit_fold_single(Emit *e, Access f)
{
    if (is_single(e->st->kind))
        emit_put(e, AT_FINISH, "(%s)[self->id] = %s;\n", emit_array(e, f, true),
                 emit_expr(e, emit_folded(e, f)));
    return is_single(e->st->kind);
}

bool emit_store_single(Emit *e, Access a, const char *value)
{
    if (is_single(e->st->kind))
        emit_put(e, AT_FINISH, "(%s)[0] = %s;\n", emit_array(e, a, true), value);
    return is_single(e->st->kind);
}

/* ---- block codes (templates/codes.h) ---- */
bool emit_coded(const Emit *e, Access a) { return type_coded(e->plan->mem[a.mem].type); }

bool emit_codes(const Emit *e)
{
    bool any = false;
    for (int i = 0; i < e->st->nload + e->st->nstore; i++)
        any = any ||
              emit_coded(e, i < e->st->nload ? e->st->load[i] : e->st->store[i - e->st->nload]);
    return any;
}

void emit_dither(Emit *e)
{
    bool stores = false;
    for (int i = 0; i < e->st->nstore; i++)
        stores = stores || emit_coded(e, e->st->store[i]);
    if (stores)
        emit_put(e, AT_HOISTED, "const unsigned dither = optc_dither(self->hyper[0]%s);\n",
                 e->t_ahead ? " + 1.0" : "");
}

/* ---- stochastic rounding (templates/rounding.h) ---- */
bool emit_drawn(const Emit *e, Access a) { return type_draws(e->plan->mem[a.mem].type); }

bool emit_draws(const Emit *e)
{
    bool any = false;
    for (int i = 0; i < e->st->nstore; i++)
        any = any || emit_drawn(e, e->st->store[i]);
    return any;
}

const char *emit_draws_of(Emit *e, Access a, const char *label)
{
    const char *name = emit_joined(e, label, "draws");
    emit_put(
        e, AT_HOISTED,
        "const optc_draws %s = optc_draws_of(self->hyper[%d], self->hyper[0]%s, self->id, %s);\n",
        name, rule_seed(e->plan->rule) + 1, e->t_ahead ? " + 1.0" : "", emit_array_number(e, a));
    return name;
}
