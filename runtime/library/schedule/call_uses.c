/* Memory that the steps of calls on a GPU read and write. Products use their operands, other
 * kernels the rows of gen/abi/kernel_uses.def. */
#include "runtime/library/schedule/call_uses.h"

#include <stdlib.h>
#include <string.h>

static const char *const kernel_uses[NCALLKERNEL] = {
#define KERNEL_USES(ID, uses) [KERNEL_##ID] = uses,
#include "gen/abi/kernel_uses.def"
};
enum {
    KERNELS_WITH_USES = 0
#define KERNEL_USES(ID, uses) +1
#include "gen/abi/kernel_uses.def"
};
_Static_assert((int)KERNELS_WITH_USES == (int)NCALLKERNEL,
               "gen/abi/kernel_uses.def has a row for each kernel of gen/abi/kernels.def");

int64_t set_value_bytes(const optc_binding *b, int set)
{
    const GpuCalls *x = b->gpu->calls;
    const int array = x->set[set].array;
    const Area *area = area_of(x, array);
    return area         ? area->bytes
           : array >= 0 ? b->program->type[b->program->array[array].type].bytes
                        : (int64_t)sizeof(FactorStats);
}

int64_t set_matrix_bytes(const optc_binding *b, int set)
{
    const GpuCalls *x = b->gpu->calls;
    const PointerSet *s = &x->set[set];
    const Area *area = area_of(x, s->array);
    const Shape shape = x->group[s->group].shape;
    if (area || s->array < 0)
        return area ? area->values * area->bytes : (int64_t)sizeof(FactorStats);
    const Dom d = b->program->array[s->array].dom;
    const int64_t values = s->row_stride ? (shape.rows - 1) * s->row_stride + shape.cols
                                         : dom_len_inside(d, shape);
    return values * set_value_bytes(b, set);
}

/* ---- visiting ---- */
typedef struct Visit {
    const optc_binding *b;
    const CallStep *s;
    UseFn *fn;
    void *ctx;
    bool first;
} Visit;

static void tell(Visit *v, StepUse *u)
{
    u->first = v->first;
    v->first = false;
    v->fn(v->ctx, u);
}

/* rows x cols values of `bytes` bytes (0: those of the set), `ld` values between rows, behind each
 * pointer of the set */
static void visit(Visit *v, StepUse u, int64_t cols, int64_t ld, int64_t bytes)
{
    const PointerSet *s = &v->b->gpu->calls->set[u.set];
    const int64_t own = set_value_bytes(v->b, u.set), from = u.at;
    u.value = bytes ? bytes : own;
    u.bytes = cols * u.value;
    u.apart = ld * u.value;
    for (int64_t part = 0; part < (s->parts ? s->parts : 1); part++)
        for (int64_t i = 0; i < (s->blocks ? s->blocks : 1); i++)
            for (int64_t j = 0; j <= i; j++) {
                u.at = from * u.value +
                       (s->offset + part * s->apart + i * s->down + j * s->across) * own;
                tell(v, &u);
            }
}

static void visit_matrix(Visit *v, int set, bool writes, bool lower, int64_t rows,
                         int64_t cols, int64_t ld)
{
    const StepUse u = {.set = set, .writes = writes, .lower = lower, .rows = rows};
    v->first = true;
    visit(v, u, cols, ld, 0);
}

static void visit_product(Visit *v)
{
    const CallStep *s = v->s;
    const bool ta = s->flags & TRANS_A, tb = s->flags & TRANS_B,
               lower = s->kind != STEP_PRODUCT && s->flags & SYMMETRIC;
    visit_matrix(v, s->a, false, false, ta ? s->k : s->m, ta ? s->m : s->k, s->lda);
    visit_matrix(v, s->b, false, false, tb ? s->n : s->k, tb ? s->k : s->n, s->ldb);
    /* without cuBLASLt, a copy of the addend */
    if (s->beta != 0)
        visit_matrix(v, s->kind == STEP_SYMMETRIC && s->d >= 0 ? s->d : s->c, false, lower, s->m,
                     s->n, s->ldc);
    visit_matrix(v, s->c, true, lower && s->kind == STEP_KERNEL, s->m, s->n, s->ldc);
}

/* ---- rows of kernel_uses.def ---- */
static int64_t length(const CallStep *s, char c)
{
    const int64_t t = count_up(s->n, 32);
    switch (c) {
    case 'm': return s->m;
    case 'n': return s->n;
    case 'k': return s->k;
    case 't': return t;
    case 'T': return t * (t + 1) / 2;
    case 'v': return count_up(s->m * s->n, 4096);
    default: return 1;
    }
}

static bool suffix(const char *word, char c)
{
    const char *at = strchr(word + 1, c);
    return at && at < word + strcspn(word, " ");
}

/* the condition of a word holds */
static bool holds(const CallStep *s, const char *word)
{
    const size_t n = strcspn(word, " "), at = strcspn(word, "?!");
    if (suffix(word, '~') && s->beta == 0)
        return false;
    return at >= n || ((s->flags & (unsigned)atoi(word + at + 1)) != 0) == (word[at] == '?');
}

/* The set of the numbers is that of an operand: they are in its record, or round. */
static void visit_numbers(Visit *v, bool writes)
{
    StepUse u = {.set = -1, .writes = writes, .whole = true};
    tell(v, &u);
}

static void visit_tiles(Visit *v, StepUse u, bool below)
{
    const int64_t n = v->s->n, ld = below ? 64 : n;
    for (int64_t k = 0, w; k < n; k += w) {
        w = n - k < 64 ? n - k : 64;
        u.at = k * ld + (below ? 0 : k);
        u.rows = w;
        visit(v, u, w, ld, 0);
    }
}

static void visit_word(Visit *v, const char *word)
{
    const CallStep *s = v->s;
    StepUse u = {.writes = *word == '>'};
    word += u.writes;
    if (!holds(s, word))
        return;
    v->first = true;
    if (*word == '#') {
        visit_numbers(v, u.writes);
        return;
    }
    const char *extent = word + 1;
    u.set = *word == 'a' ? s->a : *word == 'b' ? s->b : s->c;
    u.lower = suffix(word, '/');
    if (*extent == '*') {
        u.whole = true;
        tell(v, &u);
    } else if (*extent == 'D' || *extent == 'E') {
        u.lower = *extent == 'D';
        visit_tiles(v, u, *extent == 'E' && s->m == 64);
    } else if (*extent == 'I') {
        u.rows = s->n;
        visit(v, u, 1, s->n + 1, 0);
    } else {
        const int64_t parts = *extent == 'P' ? s->k : 1;
        extent += *extent == 'P';
        const PointerSet *set = &v->b->gpu->calls->set[u.set];
        const bool stride = set->row_stride && (!is_area(set->array) || suffix(word, 's'));
        /* an operand without an extent is one value */
        const bool one = !strchr("1mnkvtT", *extent) || !*extent;
        const int64_t cols = one ? 1 : length(s, extent[1]), ld = stride ? set->row_stride : cols;
        u.rows = length(s, *extent);
        for (int64_t i = 0; i < parts; i++) {
            u.at = i * u.rows * cols;
            if (suffix(word, '^'))
                u.at += (cols - u.rows) * ld;
            visit(v, u, cols, ld, suffix(word, 'd') ? 8 : 0);
        }
    }
}

void step_uses(const optc_binding *b, const CallStep *s, UseFn *fn, void *ctx)
{
    Visit v = {b, s, fn, ctx, false};
    const char *word = kernel_uses[s->kernel];
    if (s->kind == STEP_BODY)
        return;
    if (s->kind == STEP_PRODUCT || s->kind == STEP_SYMMETRIC || s->kernel == s->type->mm) {
        visit_product(&v);
        return;
    }
    if (s->kind == STEP_SOLVER)                            /* b: a status of each matrix */
        word = "ann/ >ann >c1n >b";
    for (; *word; word += strspn(word, " ")) {
        visit_word(&v, word);
        word += strcspn(word, " ");
    }
}
