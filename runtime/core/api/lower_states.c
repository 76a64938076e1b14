/* Refuses values for states that a rule keeps lower triangles (gen/ir/lower_values.c). A GPU leaves
 * the zeros right of their diagonals out of products, and would use a part of other values
 * there. */
#include "runtime/core/api/api.h"

#include <stdio.h>
#include <string.h>

static double value_at(const NewValues *x, int64_t i)
{
    double room = 0;                                   /* holds a value of any type */
    memcpy(&room, (const char *)x->data + (i - x->at) * x->bytes, (size_t)x->bytes);
    return type_load(x->type, &room, 0);
}

/* The index of the first value right of a diagonal that is neither 0 nor NaN, in matrices of side x
 * side that begin at index `from` of the state and end at `end`; -1: none. NaN passes: 0 times
 * infinity is NaN there in a run that is not finite any more; its states must load again. */
static int64_t find_above_diagonal(const NewValues *x, int64_t from, int64_t end, int64_t side)
{
    int64_t last = x->at + x->n < end ? x->at + x->n : end;
    for (int64_t i = x->at > from ? x->at : from, line; i < last; i = line + side) {
        line = i - (i - from) % side;                  /* the beginning of the row */
        int64_t k = line + (line - from) / side % side + 1;
        for (k = k > i ? k : i; k < line + side && k < last; k++) {
            const double v = value_at(x, k);
            if (v != 0 && v == v)
                return k;
        }
    }
    return -1;
}

CORE optc_status check_lower(const ProgArray *m, Shape s, const NewValues *x)
{
    const bool blocks = dom_of_block(m->dom) && s.block;
    int64_t from = 0, before = 0;                      /* values and matrices of other sizes */
    for (int k = 0; m->lower && k < (blocks ? BLOCK_SIZES : 1); k++) {
        const Shape each = blocks ? block_size(s, k).shape : s;
        const int64_t side = axis_len(dom_info[m->dom].axis[0], each), n = dom_len(m->dom, each);
        const int64_t at = find_above_diagonal(x, from, from + n, side);
        if (at >= 0) {
            char matrix[48] = "";
            if (dom_len(m->dom, s) > side * side)
                snprintf(matrix, sizeof matrix, "matrix %lld, ",
                         (long long)(before + (at - from) / (side * side)));
            return fail(OPTC_ERROR_ARGUMENT,
                        "%s: state '%s' of %s is a lower triangle: %srow %lld, column %lld is %g; "
                        "set values right of the diagonal to 0, or transpose the matrix",
                        x->call, m->name, x->label, matrix, (long long)((at - from) / side % side),
                        (long long)((at - from) % side), value_at(x, at));
        }
        from += n;
        before += side ? n / (side * side) : 0;
    }
    return OPTC_OK;
}

/* ---- without a binding ---- */
int optc_rule_lower_triangle(const optc_rule *r, const char *name)
{
    const Program *p = r ? r->program : NULL;
    for (int k = 0; p && k < p->narray; k++)
        if (p->array[k].lower && name && !strcmp(p->array[k].name, name))
            return 1;
    return 0;
}

static optc_status check_values_of(const Program *p, const optc_tensor *t, const char *name,
                                   const NewValues *x)
{
    const TensorFacts facts = tensor_facts(t);
    Shape s = facts_shape(&facts, view_of(p, &facts));
    s.rank = rank_length(p->rank, p->share, s);
    s.block = p->block;
    for (int k = 0; k < p->narray; k++)
        if (p->array[k].lower && !strcmp(p->array[k].name, name) &&
            p->array[k].held_by >> variant_of(p->variant, p->nvariant, &facts) & 1)
            return check_lower(&p->array[k], s, x);
    return OPTC_OK;
}

optc_status optc_rule_check_state_sized(const optc_rule *r, const char *name,
                                        const optc_tensor *tensor, optc_type type,
                                        const void *values, int64_t at, int64_t count, size_t size)
{
    static const char call[] = "optc_rule_check_state";
    const StructVersion is =
        STRUCT_VERSION("optc_rule_check_state_sized", optc_tensor, call, offset);
    optc_tensor t;
    char label[80];
    if (!r || !name || !tensor || (!values && count))
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is NULL", call,
                    !r        ? "the rule"
                    : !name   ? "the name"
                    : !tensor ? "the tensor"
                              : "the list of values");
    optc_status s = struct_read(&is, &t, tensor, size);
    int64_t n = 1;
    bool fits = s == OPTC_OK && t.rank >= 0 && (t.shape || t.global_shape || !t.rank);
    for (int k = 0; fits && k < t.rank; k++)
        fits = whole_dim(&t, k) >= 0 && !__builtin_mul_overflow(n, whole_dim(&t, k), &n);
    if (s == OPTC_OK && (!fits || at < 0 || count < 0 || count > INT64_MAX - at))
        s = !fits ? fail(OPTC_ERROR_ARGUMENT,
                         "%s: the tensor's rank or shape is negative, missing or too large", call)
                  : fail(OPTC_ERROR_ARGUMENT,
                         "%s: at is %lld and count %lld: they must be a range of the state", call,
                         (long long)at, (long long)count);
    if (s == OPTC_OK &&
        ((int)type < 1 || (int)type > r->program->ntype || type_is_coded((int)type - 1)))
        s = fail(OPTC_ERROR_ARGUMENT,
                 "%s: type %d is not a type of single values: give optc_type of the values", call,
                 (int)type);
    if (s != OPTC_OK)
        return s;
    snprintf(label, sizeof label, "tensor '%.60s'", t.name ? t.name : "");
    const NewValues x = {call,   label, (int)type - 1, r->program->type[type - 1].bytes,
                         values, at,    count};
    return check_values_of(r->program, &t, name, &x);
}
