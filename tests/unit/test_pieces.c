/* Pieces of tensors (shards): a bound piece is stepped like that part of the whole tensor. */
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include <stdlib.h>
#include <string.h>

/* A piece is stepped like that part of the whole: draws of elements, rows and matrices, and sizes,
 * are the whole's. The lower half of two 8 x 6 matrices, native and on the evaluator. The piece is
 * made by hand, since rules that are not elementwise bind only whole tensors. */
START_TEST(piece_of_whole)
{
    static const char text[] =
        "return optimizer { name = 'x', hyper = { lr = 0.5 }, view = 'last',\n"
        "  step = function() p = p + random() + lr * normal 'row' + random 'slice' + normal "
        "'col' + numel + nrows * ncols end }";
    enum { ROWS = 8, COLS = 6, HALF = ROWS / 2 * COLS };
    static const TestShape whole[] = {{2, {ROWS, COLS}}}, half[] = {{2, {ROWS / 2, COLS}}};
    Fixture a, b;
    optc_engine_options o = {.compiler = _i ? "" : NULL, .cache_dir = _i ? "" : NULL};
    fix_open(&a, &o, &(optc_rule_options){.text = text}, whole, 1, NULL, 0);
    fix_open(&b, &o, &(optc_rule_options){.text = text}, half, 1, NULL, 0);
    ck_assert(optc_rule_native(a.rule) == !_i);
    Tensor *t = b.binding->tensor;
    ck_assert(t->whole.n == HALF && t->view.whole_n == HALF && !t->before[ELEM] && !t->view.first &&
              !t->view.first_row);
    t->whole = a.binding->tensor[0].shape;
    t->before[ELEM] = t->view.first = HALF;
    t->before[ROW] = t->view.first_row = ROWS / 2;
    t->view.whole_n = ROWS * COLS;
    t->view.whole_rows = ROWS;
    memcpy(b.p[0], (float *)a.p[0] + HALF, HALF * sizeof(float));
    OK(optc_step(a.binding));
    OK(optc_step(b.binding));
    for (int i = 0; i < HALF; i++)
        ck_assert_msg(((float *)b.p[0])[i] == ((float *)a.p[0])[HALF + i],
                      "element %d: %.9g, of the whole %.9g", i, (double)((float *)b.p[0])[i],
                      (double)((float *)a.p[0])[HALF + i]);
    fix_close(&a);
    fix_close(&b);
}
END_TEST

/* Bound pieces of elementwise rules, with draws of elements and sizes of the whole. Cut along the
 * first dimension; one is empty. */
START_TEST(pieces)
{
    static const char text[] =
        "return optimizer { name = 'x', hyper = { lr = 0.5 }, state = { m = zeros },\n"
        "  step = function() m = 0.5 * m + g + random() p = p - lr * m + numel * lr end }";
    enum { ROWS = 7, COLS = 5 };
    static const int64_t cut[] = {0, 3, 3, ROWS};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b[4];
    float p[2][ROWS * COLS], g[ROWS * COLS];
    int64_t whole[] = {ROWS, COLS}, rows[2] = {0, COLS}, at[2] = {0, 0};
    for (int i = 0; i < ROWS * COLS; i++)
        p[0][i] = p[1][i] = (float)ref_value(0, 0, i), g[i] = (float)ref_value(1, 0, i);
    OK(optc_open(NULL, &e));
    OK(optc_compile(e, &(optc_rule_options){.text = text}, &r));
    for (int k = 0; k < 4; k++) {              /* the last is the whole */
        rows[0] = k < 3 ? cut[k + 1] - cut[k] : ROWS, at[0] = k < 3 ? cut[k] : 0;
        optc_tensor t = {.param = p[k == 3] + at[0] * COLS,
                         .grad = g + at[0] * COLS,
                         .rank = 2,
                         .shape = rows,
                         .global_shape = k < 3 ? whole : NULL,
                         .offset = k < 3 ? at : NULL};
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b[k]));
        for (int s = 0; s < 3; s++)
            OK(optc_step(b[k]));
        OK(optc_unbind(b[k]));
    }
    ck_assert(!memcmp(p[0], p[1], sizeof p[0]));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* The same, cut along the second dimension, with stochastic rounding: a piece consists of one run
 * per row. A state in block codes needs runs of whole blocks. */
START_TEST(pieces_of_runs)
{
    static const char text[] =
        "return optimizer { name = 'x', hyper = { lr = 0.5 }, state = { m = zeros },\n"
        "  step = function() m = 0.5 * m + g + random() p = p - lr * m + numel * lr end }";
    enum { ROWS = 40, COLS = 384 };
    static const int64_t cut[] = {0, 128, 256, COLS};
    static unsigned short p[ROWS * COLS], g[ROWS * COLS], piece_p[ROWS * COLS],
        piece_g[ROWS * COLS];
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    int64_t whole[] = {ROWS, COLS}, size[2] = {ROWS, COLS}, at[2] = {0, 0};
    for (int i = 0; i < ROWS * COLS; i++)
        p[i] = g[i] = (unsigned short)(0x3f00 + i % 97);
    OK(optc_open(&(optc_engine_options){.cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    OK(optc_compile(e, &(optc_rule_options){.text = text, .types = "param=bf16sr,state=q8"}, &r));
    for (int k = 3; k >= 0; k--) {             /* the first is the whole */
        int64_t n = size[1] = k < 3 ? cut[k + 1] - cut[k] : COLS;
        at[1] = k < 3 ? cut[k] : 0;
        for (int64_t i = 0; i < ROWS * n; i++) {
            piece_g[i] = g[i / n * COLS + at[1] + i % n];
            piece_p[i] = piece_g[i];
        }
        optc_tensor t = {.param = piece_p, .grad = piece_g, .rank = 2, .shape = size,
                         .global_shape = k < 3 ? whole : NULL, .offset = k < 3 ? at : NULL};
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
        for (int s = 0; s < 3; s++)
            OK(optc_step(b));
        OK(optc_unbind(b));
        for (int64_t i = 0; i < ROWS * n; i++)
            if (k == 3)
                p[i] = piece_p[i];
            else
                ck_assert_msg(piece_p[i] == p[i / n * COLS + at[1] + i % n], "piece %d, element %d",
                              k, (int)i);
    }
    size[1] = 192, at[1] = 0;
    optc_tensor half = {.param = piece_p,
                        .grad = piece_g,
                        .rank = 2,
                        .shape = size,
                        .global_shape = whole,
                        .offset = at,
                        .name = "w"};
    FAILS(optc_bind(r, &(optc_group){.tensors = &half, .ntensors = 1}, 1, &b), OPTC_ERROR_ARGUMENT,
          "cut the tensor at multiples of 128 elements");
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Reductions of a piece: its partials have the same places as in the whole. So the pieces of a
 * tensor, stepped stage by stage with partials exchanged, give the result of the whole. Cut by
 * rows, by matrices, and as a vector; the lower part begins in the middle of a segment. Made by
 * hand from bindings of the whole, since such rules take no pieces. A place that both pieces write,
 * or none, is an error. */
/* upper: length of the upper piece in the first dimension */
typedef struct Cut { const char *step; int rank; int64_t shape[3], upper; } Cut;
static const Cut cuts[] = {
    {"p = p + sum(g) * lr", 1, {3 * OPTC_SEG + 77}, 2 * OPTC_SEG},
    {"p = p + max(g) - min(abs(g))", 2, {192, 128}, 64},
    {"p = p + rowsum(g) + colsum(g) * lr", 2, {300, 1100}, 128},
    {"p = p + sum(colsum(g)) + max(rowsum(g)) * lr", 2, {OPTC_SEG + 90, 70}, OPTC_SEG},
    {"p = p + rowmax(g) * slice.sum(g) + slice.sum(rowsum(g)) - sum(colsum(abs(g)))",
     3,
     {5, 130, 70},
     2},
    {"p = p + sum(slice.sum(g) * slice.sum(abs(g)))", 3, {OPTC_SEG + 3, 3, 5}, OPTC_SEG},
};

/* Turns binding `of` of the whole into the piece first..first + n of its first dimension. */
static void make_piece(Fixture *of, const Cut *c, int64_t first, int64_t n)
{
    Tensor *t = of->binding->tensor;
    Units *u = &of->binding->units[t->variant];
    int64_t dim[3] = {n, c->shape[1], c->shape[2]}, each = t->whole.n / c->shape[0];
    t->shape = count_shape(c->rank > 2 ? VIEW_LAST : VIEW_FIRST, c->rank, dim, false);
    for (int d = 0; d < NDOM; d++)
        t->before[d] =
            dom_len((Dom)d, count_shape(c->rank > 2 ? VIEW_LAST : VIEW_FIRST, c->rank,
                                        (int64_t[]){first, c->shape[1], c->shape[2]}, false));
    t->view.n = t->shape.n, t->view.slices = t->shape.slices, t->view.rows = t->shape.rows,
        t->view.cols = t->shape.cols;
    t->view.first = first * each, t->view.first_slice = c->rank == 3 ? first : 0;
    t->view.first_row = c->rank == 3 ? first * c->shape[1] : c->rank == 2 ? first : 0;
    t->view.first_col = c->rank == 3 ? first * c->shape[2] : c->rank == 1 ? first : 0;
    memmove(of->p[0], (float *)of->p[0] + first * each, (size_t)(n * each) * sizeof(float));
    memmove(of->g[0], (float *)of->g[0] + first * each, (size_t)(n * each) * sizeof(float));
    for (int k = 0; k < NSTAGEKIND; k++)
        u->prefix[k][1] = stage_units((StageKind)k, t->shape);
}

static int64_t part_bytes(const Tensor *t, const ProgArray *m, const Program *p)
{
    return array_length(m, t->shape, t->whole, 1) * p->type[m->type].bytes;
}

/* Runs one stage of both pieces and exchanges their partials. Arrays are marked before, to find
 * places that no stage writes. */
static void piece_stage(Fixture *f[2], const ProgStage *s)
{
    const Program *p = f[0]->rule->program;
    const unsigned char mark = 0xfd;
    for (int i = 0; i < 2; i++) {
        Tensor *t = f[i]->binding->tensor;
        for (int k = 0; k < s->nwrites; k++)
            if (p->array[s->writes[k]].kind == MEM_PART && p->array[s->writes[k]].dom != GROUP)
                memset(t->mem[s->writes[k]], mark,
                       (size_t)part_bytes(t, &p->array[s->writes[k]], p));
        int64_t units =
            s->kind == S_GROUP ? 1 : f[i]->binding->units[s->variant].prefix[s->kind][1];
        for (int64_t u = 0; u < units; u++)
            f[i]->rule->fn[s->fn](s->kind == S_GROUP ? &f[i]->binding->group[0].view : &t->view, u);
    }
    for (int k = 0; k < s->nwrites; k++) {
        const ProgArray *m = &p->array[s->writes[k]];
        if (m->kind != MEM_PART || m->dom == GROUP)
            continue;
        const Tensor *t[2] = {f[0]->binding->tensor, f[1]->binding->tensor};
        Shape lie[2] = {parts_shape(m->dom, t[0]->shape, t[0]->whole),
                        parts_shape(m->dom, t[1]->shape, t[1]->whole)};
        /* (never in halves) */
        bool cut = dom_len(m->from, t[0]->shape) != dom_len(m->from, t[1]->shape);
        /* along the folded axis */
        bool shared = cut && !memcmp(&lie[0], &lie[1], sizeof *lie);
        int64_t size = p->type[m->type].bytes,
                n[2] = {part_bytes(t[0], m, p) / size, part_bytes(t[1], m, p) / size};
        for (int64_t i = 0; i < n[0] || i < n[1]; i++) {
            char *at[2] = {(char *)t[0]->mem[s->writes[k]] + i * size,
                           (char *)t[1]->mem[s->writes[k]] + i * size};
            bool left[2];
            for (int j = 0; j < 2; j++)
                left[j] = i < n[j] && (unsigned char)at[j][size - 1] != mark;
            /* each piece has its own rows, columns or matrices, or both have the same */
            if (!shared) {
                ck_assert_msg(left[0] == (i < n[0]) && left[1] == (i < n[1]), "place %lld",
                              (long long)i);
                ck_assert(cut || !memcmp(at[0], at[1], (size_t)size));
                continue;
            }
            ck_assert_msg(left[0] != left[1], "place %lld is filled by %s", (long long)i,
                          left[0] ? "both" : "none");
            memcpy(at[left[0]], at[!left[0]], (size_t)size);
        }
    }
}

START_TEST(pieces_reduce)
{
    const Cut *c = &cuts[_i];
    char text[400];
    Fixture a, upper, lower, *f[2] = {&upper, &lower};
    TestShape whole = {.rank = c->rank};
    for (int i = 0; i < c->rank; i++)
        whole.dim[i] = c->shape[i];
    snprintf(text, sizeof text,
             "return optimizer { name = 'x', hyper = { lr = 0.5 }, view = '%s', step = function() "
             "%s end }",
             c->rank > 2 ? "last" : "first", c->step);
    fix_open(&a, NULL, &(optc_rule_options){.text = text}, &whole, 1, NULL, 0);
    for (int i = 0; i < 2; i++) {
        fix_open(f[i], NULL, &(optc_rule_options){.text = text}, &whole, 1, NULL, 0);
        make_piece(f[i], c, i ? c->upper : 0, i ? c->shape[0] - c->upper : c->upper);
    }
    const ProgPhase *ph = &a.rule->program->entry[0].phase[0];
    for (int i = 0; i < ph->naction; i++)
        if (ph->action[i].kind == ACT_LAUNCH &&
            a.rule->program->stage[ph->action[i].stage].variant == a.binding->tensor->variant)
            piece_stage(f, &upper.rule->program->stage[ph->action[i].stage]);
    OK(optc_step(a.binding));
    int64_t n = upper.binding->tensor->shape.n;
    ck_assert_int_eq(memcmp(upper.p[0], a.p[0], (size_t)n * sizeof(float)), 0);
    ck_assert_int_eq(memcmp(lower.p[0], (float *)a.p[0] + n,
                            (size_t)(a.binding->tensor->shape.n - n) * sizeof(float)),
                     0);
    fix_close(&a);
    fix_close(&upper);
    fix_close(&lower);
}
END_TEST

Suite *pieces_suite(void)
{
    Suite *s = suite_create("pieces");
    TCase *t = tcase_create("pieces");
    tcase_add_test(t, pieces);
    tcase_add_test(t, pieces_of_runs);
    tcase_add_loop_test(t, piece_of_whole, 0, 2);
    tcase_add_loop_test(t, pieces_reduce, 0, (int)(sizeof cuts / sizeof *cuts));
    suite_add_tcase(s, t);
    return s;
}
