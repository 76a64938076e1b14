/* The core: addresses of arrays, the actions of a run, and refused tensors. */
#include "tests/harness/help.h"
#include "runtime/library/rule/gpu_code.h"
#include "runtime/core/schedule/schedule_ops.h"
#include "tests/harness/suites.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const TestShape shapes[] = {
    {2, {300, 70}}, {1, {5000}}, {2, {33, 65}}, {2, {0, 5}}, {0, {0}}};
enum { NSHAPE = 5 };

/* ---- temporaries share memory only where no action could tell ---- */
static bool touches(const Program *p, const ProgAction *a, int array)
{
    for (int i = 0; a->kind == ACT_LAUNCH && i < p->stage[a->stage].nreads; i++)
        if (p->stage[a->stage].reads[i] == array)
            return true;
    for (int i = 0; a->kind == ACT_LAUNCH && i < p->stage[a->stage].nwrites; i++)
        if (p->stage[a->stage].writes[i] == array)
            return true;
    return false;
}

/* Whether an array is needed at this action: accessed at it, or before and after it. */
static bool needed(const Program *p, const ProgPhase *ph, int at, int array)
{
    bool before = false, behind = false;
    for (int i = 0; i < ph->naction; i++) {
        before = before || (i <= at && touches(p, &ph->action[i], array));
        behind = behind || (i >= at && touches(p, &ph->action[i], array));
    }
    return before && behind;
}

typedef struct { const char *lo, *hi; int array; } Part;

/* The memory of an array, per tensor (or per group). */
static int parts_of(const optc_binding *b, int k, Part *out)
{
    const Program *p = b->program;
    const ProgArray *m = &p->array[k];
    bool group = m->dom == GROUP, one = group && m->kind == MEM_PART;
    int n = 0;
    if (m->kind != MEM_STATE && m->kind != MEM_TEMP && m->kind != MEM_PART)
        return 0;
    for (int i = 0; i < (one ? 1 : group ? b->ngroup : b->ntensor); i++) {
        const char *at = group ? b->group[i].mem[k] : b->tensor[i].mem[k];
        int64_t len = one ? b->ntensor : group ? 1
            : array_length(m, b->tensor[i].shape, b->tensor[i].whole, b->ntensor);
        if (at && len)
            out[n++] = (Part){at, at + len * p->type[m->type].bytes, k};
    }
    return n;
}

static void check_apart(const optc_binding *b, const ProgPhase *ph, int at)
{
    const Program *p = b->program;
    static Part part[4096];
    int n = 0;
    for (int k = 0; k < p->narray; k++)
        if (p->array[k].kind == MEM_STATE || needed(p, ph, at, k))
            n += parts_of(b, k, part + n);
    for (int i = 0; i < n; i++) {
        ck_assert(part[i].lo >= (char *)b->block &&
                  part[i].hi <= (char *)b->block + b->storage_bytes);
        for (int j = 0; j < i; j++)
            ck_assert_msg(part[i].hi <= part[j].lo || part[j].hi <= part[i].lo,
                          "%s: arrays %s and %s overlap at action %d", p->name,
                          p->array[part[i].array].name, p->array[part[j].array].name, at);
    }
}

START_TEST(shared_memory)
{
    static const struct { const char *spec, *with;
    } rules[] = {{"adafactor", NULL},
                 {"came", NULL},
                 {"lamb", "clip(1)"},
                 {"sgd", "lookahead(2,0.5)"},
                 {"adamp", NULL}};
    Fixture f;
    fix_open(&f, NULL, &(optc_rule_options){.spec = rules[_i].spec, .with = rules[_i].with}, shapes,
             NSHAPE, NULL, 0);
    const optc_binding *b = f.binding;
    const Program *p = f.rule->program;
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < program_phases(p); m++)
            for (int i = 0; i < p->entry[e].phase[m].naction; i++)
                check_apart(b, &p->entry[e].phase[m], i);
    ck_assert_uint_le(b->storage_bytes, b->unshared_bytes + 64);
    fix_close(&f);
}
END_TEST

/* Three temporaries of a rule: the first two are never needed at the same time, the third always
 * is; a fourth contains data of an earlier run. */
START_TEST(placed)
{
    enum { A, B, C, D, NTEMP };
    static const int writes[][3] = {{A, C}, {C}, {B, C}, {C}}, nwrites[] = {2, 1, 2, 1},
        reads[][3] = {{D}, {A, C}, {C}, {B, C}}, nreads[] = {1, 2, 1, 2};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    float p[1000] = {0}, g[1000] = {0};
    int64_t n = 1000;
    OK(optc_open(NULL, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    const Program *was = r->program;
    Program x = *was;
    ProgArray array[64];
    ProgStage stage[4];
    ProgAction act[4];
    int list[2][4][3];
    ck_assert_int_lt(was->narray, 60);
    memcpy(array, was->array, sizeof *array * (size_t)was->narray);
    for (int k = 0; k < NTEMP; k++)
        array[x.narray + k] = (ProgArray){
            .kind = MEM_TEMP, .dom = ELEM, .from = ELEM, .type = T_F32, .name = "t", .held_by = 1};
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 3; k++) {
            list[0][i][k] = was->narray + reads[i][k];
            list[1][i][k] = was->narray + writes[i][k];
        }
        stage[i] = (ProgStage){.kind = S_FLAT,
                               .reads = list[0][i],
                               .nreads = nreads[i],
                               .writes = list[1][i],
                               .nwrites = nwrites[i],
                               .kernel = "",
                               .name = "",
                               .where = ""};
        act[i] = (ProgAction){ACT_LAUNCH, i};
    }
    ProgPhase ph = {act, 4};
    ProgEntry entry = {"step", &ph, 0};
    x.array = array, x.narray += NTEMP, x.stage = stage, x.nstage = 4, x.entry = &entry,
    x.nentry = 1;
    r->program = &x;
    OK(optc_bind(
        r,
        &(optc_group){.tensors = &(optc_tensor){.param = p, .grad = g, .rank = 1, .shape = &n},
                      .ntensors = 1},
        1, &b));
    void **mem = b->tensor[0].mem + was->narray;
    ck_assert(mem[A] == mem[B] && mem[A] != mem[C] && mem[D] != mem[A] && mem[D] != mem[C]);
    ck_assert_uint_ge(b->unshared_bytes + 64 - b->storage_bytes, 4000);
    OK(optc_unbind(b));
    r->program = was;
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Thousands of temporaries are placed in milliseconds of CPU time: each needed by two actions, so
 * that all share the memory of three; or all at once. */
START_TEST(many_placed)
{
    enum { MANY = 6000 };
    const int many = sanitized() ? 1500 : MANY;        /* the time is quadratic */
    static ProgArray array[MANY + 64];
    static ProgStage stage[MANY];
    static ProgAction act[MANY];
    static int number[MANY];
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    float p[16] = {0}, g[16] = {0};
    int64_t n = 16;
    OK(optc_open(NULL, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    const Program *was = r->program;
    Program x = *was;
    memcpy(array, was->array, sizeof *array * (size_t)was->narray);
    for (int i = 0; i < many; i++) {
        number[i] = was->narray + i;
        array[number[i]] = (ProgArray){
            .kind = MEM_TEMP, .dom = ELEM, .from = ELEM, .type = T_F32, .name = "t", .held_by = 1};
        stage[i] = (ProgStage){.kind = S_FLAT,
                               .reads = &number[i ? i - 1 : 0],
                               .nreads = i > 0,
                               .writes = &number[i],
                               .nwrites = 1,
                               .kernel = "",
                               .name = "",
                               .where = ""};
        act[i] = (ProgAction){ACT_LAUNCH, i};
    }
    if (_i) {
        stage[0].writes = stage[1].reads = number;
        stage[0].nwrites = stage[1].nreads = many;
        stage[1].nwrites = 0;
    }
    ProgPhase ph = {act, _i ? 2 : many};
    ProgEntry entry = {"step", &ph, 0};
    x.array = array, x.narray += many, x.stage = stage, x.nstage = ph.naction, x.entry = &entry,
    x.nentry = 1;
    r->program = &x;
    clock_t from = clock();
    OK(optc_bind(
        r,
        &(optc_group){.tensors = &(optc_tensor){.param = p, .grad = g, .rank = 1, .shape = &n},
                      .ntensors = 1},
        1, &b));
    double seconds = (double)(clock() - from) / CLOCKS_PER_SEC;
    ck_assert_msg(seconds < 30, "binding took %.2f s", seconds);
    size_t states = 2 * 64, room = b->storage_bytes - states;
    ck_assert_msg(_i ? room >= (size_t)many * 64 : room <= 3 * 64 + 64, "%zu bytes", room);
    for (int i = 1; i < many; i++)
        ck_assert(b->tensor[0].mem[number[i]] != b->tensor[0].mem[number[i - 1]]);
    OK(optc_unbind(b));
    r->program = was;
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* A tensor has memory only for what its variant accesses: `matrix` needs an element temporary,
 * `step` none. */
START_TEST(only_touched)
{
    static const char text[] =
        "return optimizer { name = 'x', hyper = { lr = 0.1 },\n"
        "  step = function() p = p - lr * g end,\n"
        "  matrix = function() local u = g / (1 + mean(g * g)) p = p - lr * u / (1 + "
        "mean(exp(u) * u)) end }";
    static const TestShape flat[] = {{1, {100000}}}, both[] = {{1, {100000}}, {2, {30, 20}}},
        matrix[] = {{2, {30, 20}}};
    size_t bytes[3];
    for (int k = 0; k < 3; k++) {
        Fixture f;
        fix_open(&f, NULL, &(optc_rule_options){.text = text},
                 k == 0   ? flat
                 : k == 1 ? both
                          : matrix,
                 k == 1 ? 2 : 1, NULL, 0);
        bytes[k] = f.binding->storage_bytes;
        for (int i = 0; k == 1 && i < f.rule->program->narray; i++)
            if (f.rule->program->array[i].kind >= MEM_TEMP &&
                f.rule->program->array[i].dom != GROUP)
                ck_assert(!f.binding->tensor[0].mem[i] && f.binding->tensor[1].mem[i]);
        char *why = step_in_bounds(&f, "step");
        ck_assert_msg(!why, "%s", why);
        fix_close(&f);
    }
    ck_assert_uint_le(bytes[0], 64);
    ck_assert_uint_eq(bytes[1] - bytes[0], bytes[2] - bytes[0]);
    ck_assert_uint_gt(bytes[2], 0);
}
END_TEST

/* ---- tensors ---- */
START_TEST(refused)
{
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    float p[8] = {0}, g[8] = {0};
    int64_t shape[] = {2, 4}, larger[] = {4, 4}, at[] = {2, 0}, zero[] = {0, 0},
            huge[] = {(int64_t)1 << 46};
    enum { MANY = 4096 };
    OK(optc_open(NULL, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    optc_tensor t = {.name = "w",
                     .param = p,
                     .grad = g,
                     .rank = 2,
                     .shape = shape,
                     .global_shape = larger,
                     .offset = at};
    optc_group all = {.tensors = &t, .ntensors = 1};
    optc_rule *whole;
    OK(optc_compile(e, &(optc_rule_options){.spec = "lamb"}, &whole));
    FAILS(optc_bind(whole, &all, 1, &b), OPTC_ERROR_ARGUMENT,
          "tensor 'w' (number 0) is a piece of a larger tensor (dimension 0: 2 of 4, from 2 on): "
          "rule 'lamb' uses "
          "values per row");
    OK(optc_release(whole));
    t.global_shape = shape;
    FAILS(optc_bind(r, &all, 1, &b), OPTC_ERROR_ARGUMENT,
          "from 2 on): the piece does not fit into global_shape");
    t.offset = zero;
    OK(optc_bind(r, &all, 1, &b));
    ck_assert(b->tensor[0].view.first == 0);
    OK(optc_unbind(b));
    /* products of lengths that overflow, also after a length of 0 */
    const int64_t far = (int64_t)1 << 40, wholes[][3] = {{far, far, 1}, {0, far, far}, {2, -4, 1}};
    for (int i = 0; i < 3; i++) {
        optc_tensor x = {.name = "w",
                         .param = p,
                         .grad = g,
                         .rank = 3,
                         .shape = (int64_t[]){0, 1, 1},
                         .global_shape = wholes[i]};
        optc_group one = {.tensors = &x, .ntensors = 1};
        FAILS(optc_bind(r, &one, 1, &b), OPTC_ERROR_ARGUMENT,
              i == 2 ? "dimension 1 of its global shape is negative or too large (-4; "
                     : "of its global shape is negative or too large (1099511627776; a tensor has "
                       "at most 2^46 elements)");
        x.shape = wholes[i], x.global_shape = NULL;
        FAILS(optc_bind(r, &one, 1, &b), OPTC_ERROR_ARGUMENT,
              i == 2 ? "dimension 1 of its shape is negative"
                     : "of its shape is negative or too large (1099511627776");
    }
    optc_tensor *many = calloc(MANY, sizeof *many);
    for (int i = 0; i < MANY; i++)
        many[i] =
            (optc_tensor){.param = (void *)((uintptr_t)(i + 1) << 48), .rank = 1, .shape = huge};
    all = (optc_group){.tensors = many, .ntensors = MANY};
    FAILS(optc_bind(r, &all, 1, &b), OPTC_ERROR_MEMORY, "more bytes than 64 bits can count");
    free(many);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* A tensor is viewed by its variant: if the variants of a rule view matrices differently, only a
 * tensor that needs both views is refused. */
START_TEST(seen_by_variant)
{
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    static float p[24], g[24];
    int64_t shape[] = {2, 3, 4};
    OK(optc_open(NULL, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adafactor"}, &r));
    const Program *was = r->program;
    Program x = *was;
    Variant v[MOST_VARIANTS];
    memcpy(v, was->variant, sizeof *v * (size_t)was->nvariant);
    ck_assert_int_ge(was->nvariant, 2);
    x.variant = v;
    r->program = &x;
    optc_tensor t = {.param = p, .grad = g, .rank = 3, .shape = shape};
    optc_group all = {.tensors = &t, .ntensors = 1};
    OK(optc_bind(r, &all, 1, &b));
    int mine = b->tensor[0].variant, other = mine ? 0 : 1;
    OK(optc_unbind(b));
    v[mine].view = VIEW_LAST, v[other].view = VIEW_FIRST;
    OK(optc_bind(r, &all, 1, &b));
    ck_assert(b->tensor[0].shape.slices == 2 && b->tensor[0].shape.rows == 3 &&
              b->tensor[0].shape.cols == 4);
    OK(optc_unbind(b));
    v[mine].view = 0, v[other].view = VIEW_LAST;
    OK(optc_bind(r, &all, 1, &b));
    ck_assert(b->tensor[0].shape.slices == 2);
    OK(optc_unbind(b));
    v[mine].view = VIEW_FIRST | VIEW_LAST;
    FAILS(optc_bind(r, &all, 1, &b), OPTC_ERROR_ARGUMENT, "see it as different matrices");
    r->program = was;
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Messages name the spec's line, also for rules with periods. */
START_TEST(labels)
{
    Fixture f;
    char label[200];
    int with = 0;
    fix_open(&f, NULL, &(optc_rule_options){.spec = "adamw", .with = "lookahead(2,0.5)"}, shapes, 1,
             NULL, 0);
    const Program *p = f.rule->program;
    ck_assert_int_gt(p->nperiod, 0);
    for (int i = 0; i < p->nstage; i++) {
        stage_label(p, &p->stage[i], label, sizeof label);
        with += strstr(label, ".lua:") != NULL;
    }
    ck_assert_msg(with == p->nstage, "%d of %d stages name a line", with, p->nstage);
    fix_close(&f);
}
END_TEST

/* sam's perturb and the rule inside both square the gradient: each stage names the file of its
 * entry, or the shared text that this includes. */
START_TEST(labels_of_entries)
{
    static const char *const with[] = {"sam", "clip(1),sam"};      /* clip computes the same norm */
    for (int i = 0; i < 2; i++) {
        Fixture f;
        fix_open(&f, NULL, &(optc_rule_options){.spec = "adamw", .with = with[i]}, shapes, 1, NULL,
                 0);
        const Program *p = f.rule->program;
        const ProgPhase *perturb = &p->entry[1].phase[0];
        ck_assert_str_eq(p->entry[1].name, "perturb");
        ck_assert_int_gt(perturb->naction, 2);
        for (int k = 0; k < perturb->naction; k++) {
            const ProgStage *s = &p->stage[perturb->action[k].stage];
            ck_assert_msg(!strncmp(s->where, "sam.lua:", 8) ||
                              !strncmp(s->where, "uphill.lua:", 11),
                          "%s: stage %d (%s) of perturb cites %s", with[i], k, s->name, s->where);
        }
        fix_close(&f);
    }
}
END_TEST

/* Which image of code a GPU uses. */
START_TEST(images)
{
    static const Image list[] = {{100, false}, {80, false}, {70, true},
                                 {86, false},  {90, false}, {75, true}};
    static const struct { int arch; bool compiles; int want;
    } ask[] = {{80, true, 1},  {86, true, 3},    {89, true, 3}, {90, false, 4}, {103, true, 0},
               {120, true, 2}, {120, false, -1}, {75, true, 2}, {61, true, -1}};
    for (int i = 0; i < 9; i++) {
        int best = -1;
        for (int k = 0; k < 6; k++)
            if (image_suits(list[k], best < 0 ? (Image){0, false} : list[best], ask[i].arch,
                            ask[i].compiles))
                best = k;
        ck_assert_msg(best == ask[i].want, "sm_%d takes image %d, not %d", ask[i].arch, best,
                      ask[i].want);
    }
}
END_TEST

Suite *core_suite(void)
{
    Suite *s = suite_create("core");
    TCase *t = tcase_create("core");
    tcase_add_loop_test(t, shared_memory, 0, 5);
    tcase_add_test(t, placed);
    tcase_add_loop_test(t, many_placed, 0, 2);
    tcase_add_test(t, only_touched);
    tcase_add_test(t, refused);
    tcase_add_test(t, seen_by_variant);
    tcase_add_test(t, labels);
    tcase_add_test(t, labels_of_entries);
    tcase_add_test(t, images);
    suite_add_tcase(s, t);
    return s;
}
