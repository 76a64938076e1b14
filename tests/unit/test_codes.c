/* Block codes (templates/codes.h, runtime/TYPES.md): the functions themselves, and compiled rules
 * whose states are codes. A compiled rule must leave the bytes that this file computes from the
 * definition of the codes. */
#include "tests/harness/code_blocks.h"
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the functions ---- */
static const unsigned dithers[] = {0,           0xffffffffu, 0x80000000u, 0x7fffffffu,
                                   0x00100000u, 0x12345678u, 0xdeadbeefu};
enum { NDITHERS = sizeof dithers / sizeof *dithers };

/* Encodes decoded codes at several dithers: codes and scale must be the same. */
static void stays(const CodeType *c, const unsigned char *code, float scale)
{
    float x[OPTC_CODED], again;
    unsigned char got[OPTC_CODED];
    code_decode(c, code, scale, x, OPTC_CODED);
    for (int d = 0; d < NDITHERS; d++) {
        again = code_encode(c, x, OPTC_CODED, dithers[d], true, got);
        EACH(!memcmp(&again, &scale, sizeof scale), "%s: scale %a became %a at dither %#x", c->name,
                      (double)scale, (double)again, dithers[d]);
        for (int i = 0; i < OPTC_CODED; i++)
            EACH(got[i] == code[i], "%s, scale %a: code %d became %d at dither %#x", c->name,
                 (double)scale, code[i], got[i], dithers[d]);
    }
}

static float random_scale(const CodeType *c, uint64_t i)
{
    for (;; i += 1000003) {
        float x = fabsf(optc_frombitsf((unsigned)(splitmix(i) >> 32)));
        if (x >= c->floor && x <= FLT_MAX)
            return x;
    }
}

/* All 256 codes at each scale. One code of a block has the largest magnitude: it gives the
 * scale. */
START_TEST(every_code)
{
    const CodeType *c = &code_types[_i];
    const float fixed[] = {c->floor,     fmaxf(c->floor, 1e-30f), 1, 1e30f, FLT_MAX, 0x1.fffffep0f,
                           0x1.000002p0f};
    const int nfixed = (int)(sizeof fixed / sizeof *fixed), each = OPTC_CODED - 1;
    for (int s = 0; s < nfixed + 300; s++) {
        float scale = (s < nfixed ? fixed[s] : random_scale(c, (uint64_t)s)) * c->per_top;
        for (int first = 0; first < 256; first += each) {
            unsigned char code[OPTC_CODED];
            code[0] = c->sign ? first ? 255 : 127 : 255;
            for (int i = 1; i < OPTC_CODED; i++)
                code[i] = (unsigned char)(first + i - 1);
            stays(c, code, scale);
        }
    }
    /* below the smallest scale no code need be the largest */
    for (int k = 1; k < 256; k++) {
        unsigned char code[OPTC_CODED] = {0};
        code[k % OPTC_CODED] = (unsigned char)k;
        if (!c->sign || k != 0x80)
            stays(c, code, c->floor * c->per_top);
    }
    unsigned char zero[OPTC_CODED] = {0, (unsigned char)(c->sign ? 0x80 : 0)};
    stays(c, zero, 0);
}
END_TEST

/* Blocks of values over the whole range of f32: the bound of runtime/TYPES.md holds, a positive
 * value of an unsigned type is not code 0, and the block stays as it is from then on. */
static void encode_block(const CodeType *c, const float *x, unsigned dither, bool each)
{
    unsigned char code[OPTC_CODED];
    float y[OPTC_CODED], scale = code_encode(c, x, OPTC_CODED, dither, each, code), most = 0;
    double half = each || scale == 0 ? 1 : 0.5 * (1 + 0x1p-11);
    code_decode(c, code, scale, y, OPTC_CODED);
    for (int i = 0; i < OPTC_CODED; i++) {
        double off = fabs((double)y[i] - (double)x[i]), bound = half * code_bound(c, x[i], scale);
        bool raised = !c->sign && code[i] == 1;
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        EACH(off <= bound || (raised && off <= code_bound(c, 0, scale)),
             "%s: %a became %a (code %d, scale %a, dither %#x): %.3g over the bound", c->name,
             (double)x[i], (double)y[i], code[i], (double)scale, dither, off / bound);
        EACH(c->sign || (x[i] != 0) == (code[i] != 0), "%s: %a has the code %d", c->name,
             (double)x[i], code[i]);
        EACH(!c->sign || !!signbit(x[i]) == code[i] >> 7, "%s: %a has the code %d", c->name,
             (double)x[i], code[i]);
    }
    float of = scale / c->per_top;
    ck_assert(of == most || (most < c->floor && (of == c->floor || (of == 0 && most < c->least))));
    stays(c, code, scale);
}

START_TEST(values)
{
    const CodeType *c = &code_types[_i];
    const float most[] = {0,
                          0x1p-149f,
                          0x3p-149f,
                          0x1p-140f,
                          0x1.fffffcp-127f,
                          FLT_MIN,
                          0x1p-126f,
                          0x1p-120f,
                          c->least,
                          nextafterf(c->least, 0),
                          nextafterf(c->least, 1),
                          1.5f * c->least,
                          2.5f * c->least,
                          c->floor * 0.99f,
                          c->floor,
                          c->floor * 1.01f,
                          1e-30f,
                          1,
                          1e30f,
                          FLT_MAX};
    for (int m = 0; m < (int)(sizeof most / sizeof *most); m++)
        for (int round = 0; round < 24; round++) {
            float x[OPTC_CODED];
            for (int i = 0; i < OPTC_CODED; i++) {
                double wide = round % 3 == 0 ? 1 : exp2(-40 * fabs(ref_value(m, round + 99, i)));
                double some = round % 4 == 1 && i % 20 ? 0 : 1;
                x[i] = (float)((double)most[m] * ref_value(m, round, i) * wide * some);
                x[i] = c->sign ? x[i] : fabsf(x[i]);
            }
            x[round] = c->sign && round % 2 ? -most[m] : most[m];
            for (int d = 0; d < NDITHERS; d++)
                encode_block(c, x, dithers[d], true);
            encode_block(c, x, OPTC_NEAREST, false);
        }
}
END_TEST

/* The mean over all dithers is the value, except below code 1 of an unsigned type. */
START_TEST(unbiased)
{
    const CodeType *c = &code_types[_i];
    for (int k = 0; k < 40; k++) {
        float x[2] = {1, (float)exp2(-k * (_i < 2 ? 0.3 : 0.4))}, y[2];
        unsigned char code[2];
        double sum = 0, step = code_bound(c, x[1], c->per_top);
        for (unsigned d = 0; d < 4096; d++) {
            code_encode(c, x, 2, d << 20, false, code);
            code_decode(c, code, c->per_top, y, 2);
            sum += (double)y[1];
        }
        if (c->sign || x[1] > c->from(1) * c->per_top)
            EACH(fabs(sum / 4096 - (double)x[1]) <= step / 2048, "%s: %a has the mean %a", c->name,
                          (double)x[1], sum / 4096);
    }
}
END_TEST

START_TEST(not_finite)
{
    const CodeType *c = &code_types[_i];
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 4 * OPTC_CODED; k++) {
        float x[OPTC_CODED], y[OPTC_CODED];
        unsigned char code[OPTC_CODED];
        for (int i = 0; i < OPTC_CODED; i++)
            x[i] = i == k / 4 ? bad[k % 4] : (float)i;
        float scale = code_encode(c, x, OPTC_CODED, dithers[k % NDITHERS], true, code);
        code_decode(c, code, scale, y, OPTC_CODED);
        ck_assert(isnan(scale));
        for (int i = 0; i < OPTC_CODED; i++)
            EACH(!code[i] && isnan(y[i]), "%s: code %d, value %g", c->name, code[i], (double)y[i]);
    }
}
END_TEST

/* ---- compiled rules ---- */
static const TestShape sizes[] = {{1, {1}},      {1, {127}},     {1, {4095}},
                                  {1, {4096}},   {1, {4097}},    {1, {100003}},
                                  {2, {64, 64}}, {2, {129, 37}}, {3, {3, 50, 41}}};
enum { NSIZES = sizeof sizes / sizeof *sizes };

/* Every operation is exact or rounds once, so this file computes the same bits. */
static const char pair[] =
    "return optimizer { name = 'pair', hyper = { lr = 0.5 },\n"
    "  state = { m = zeros('elem', '%s'), v = zeros('elem', '%s') },\n"
    "  step = function() m = 0.5 * m + g  v = 0.5 * v + g * g  p = p - lr * m - v end }";

static float few_bits(int tensor, int step, int64_t i)        /* its square is exact in f32 */
{
    double x = ref_value(tensor, step, i);
    return (float)ldexp(floor(x * 2048), -11 - (int)(i % 17));
}

static void set_grads(Fixture *f, int step)
{
    for (int k = 0; k < f->n; k++)
        for (int64_t i = 0; i < f->count[k]; i++)
            ((float *)f->g[k])[i] = few_bits(k, step, i);
}

typedef struct Mirror { float *p, *g; unsigned char *m, *v; } Mirror;

static void mirror_step(Mirror *x, const CodeType *c, int64_t n, int step)
{
    float *m = malloc(sizeof *m * (size_t)n), *v = malloc(sizeof *v * (size_t)n);
    state_decode(&c[0], x->m, n, m);
    state_decode(&c[1], x->v, n, v);
    for (int64_t i = 0; i < n; i++) {
        m[i] = 0.5f * m[i] + x->g[i];
        v[i] = 0.5f * v[i] + x->g[i] * x->g[i];
        float p = x->p[i] - 0.5f * m[i];
        x->p[i] = p - v[i];
    }
    state_encode(&c[0], x->m, n, m, step);
    state_encode(&c[1], x->v, n, v, step);
    free(m);
    free(v);
}

static void same_state(Fixture *f, int tensor, const char *name, const unsigned char *want,
                       const char *what)
{
    size_t bytes = state_size(f->count[tensor]);
    unsigned char *got = malloc(bytes);
    OK(optc_state_get(f->binding, tensor, name, got, bytes));
    for (size_t i = 0; i < bytes; i++)
        EACH(got[i] == want[i],
             "%s: state %s of tensor %d (%lld values), byte %zu: %d instead of %d", what, name,
             tensor, (long long)f->count[tensor], i, got[i], want[i]);
    free(got);
}

/* The bytes of both states and the bits of p after each step, for tensors below, at and above the
 * smallest size. */
static void steps_as_defined(const optc_engine_options *eo, int pair_of, const char *what)
{
    const CodeType *c = &code_types[pair_of];
    char *text = format(pair, c[0].name, c[1].name);
    Fixture f;
    Mirror x[NSIZES];
    fix_open(&f, eo, &(optc_rule_options){.text = text}, sizes, NSIZES, NULL, 0);
    for (int k = 0; k < NSIZES; k++) {
        size_t n = (size_t)f.count[k], bytes = state_size((int64_t)n);
        x[k] = (Mirror){malloc(4 * n), f.g[k], calloc(1, bytes), calloc(1, bytes)};
        memcpy(x[k].p, f.p[k], 4 * n);
    }
    for (int step = 1; step <= 5; step++) {
        set_grads(&f, step);
        OK(optc_step(f.binding));
        for (int k = 0; k < NSIZES; k++) {
            mirror_step(&x[k], c, f.count[k], step);
            same_state(&f, k, "m", x[k].m, what);
            same_state(&f, k, "v", x[k].v, what);
            EACH(!memcmp(x[k].p, f.p[k], 4 * (size_t)f.count[k]), "%s: p of tensor %d, step %d",
                 what, k, step);
        }
    }
    for (int k = 0; k < NSIZES; k++) {
        free(x[k].p);
        free(x[k].m);
        free(x[k].v);
    }
    fix_close(&f);
    free(text);
}

START_TEST(compiled)
{
    unsetenv("OPTC_CFLAGS");                   /* vector code of every level */
    for (int threads = 1; threads <= 3; threads += 2)
        steps_as_defined(&(optc_engine_options){.threads = threads}, 2 * _i, "threads");
    for (int isa = 0; isa < optc_isas() && !thinned(1); isa++) {
        const char *level = optc_isa_name(isa);
        if (optc_isa_usable(isa))
            steps_as_defined(&(optc_engine_options){.threads = 2, .isa = level}, 2 * _i, level);
    }
}
END_TEST

/* ---- against the evaluator ---- */
static const struct { const char *name, *text;
} folding[] = {
    {"rows and columns",
     "return optimizer { name = 'rc', hyper = { lr = 0.1 },\n"
     "  state = { m = zeros('elem', 'q8'), v = zeros('elem', 'q8u'), r = zeros 'row', c = zeros "
     "'col' },\n"
     "  matrix = function() r = lerp(r, rowmean(g * g), 0.1)  c = lerp(c, colmean(g * g), 0.1)\n"
     "    m = lerp(m, g / sqrt(r * c / mean(r) + 1e-8), 0.1)  v = lerp(v, g * g + rowmax(abs(m)), "
     "0.1)\n"
     "    p = p - lr * m / (sqrt(v) + 1) end,\n"
     "  step = function() m = lerp(m, g, 0.1)  v = lerp(v, g * g, 0.1)  p = p - lr * m / (sqrt(v) "
     "+ 1) end }"},
    {"the new state is folded",
     "return optimizer { name = 'nf', hyper = { lr = 0.1 },\n"
     "  state = { m = zeros('elem', 'f8') },\n"
     "  matrix = function() m = lerp(m, g, 0.1)  p = p - lr * m / (1 + rownorm(m) + "
     "colmax(abs(m))) end,\n"
     "  step = function() m = lerp(m, g, 0.1)  p = p - lr * m / (1 + norm(m)) end }"},
    {"a product of the state",
     "return optimizer { name = 'pr', hyper = { lr = 0.1 },\n"
     "  state = { m = zeros('elem', 'q8') },\n"
     "  matrix = function() m = lerp(m, g, 0.1)  p = p - lr * mm(gram(m), m) end,\n"
     "  step = function() m = lerp(m, g, 0.1)  p = p - lr * m end }"},
    {"blocks of matrices",
     "return optimizer { name = 'bl', hyper = { lr = 0.1 }, block = 24,\n"
     "  state = { m = zeros('elem', 'q8'), v = zeros('elem', 'f8u'), L = zeros 'rows' },\n"
     "  matrix = function() L = lerp(L, gram(g), 0.1)  m = lerp(m, mm(L, g + m), 0.1)  v = lerp(v, "
     "g * g, 0.1)\n"
     "    p = p - lr * m / (1 + sqrt(v)) end,\n"
     "  step = function() m = lerp(m, g, 0.1)  v = lerp(v, g * g, 0.1)  p = p - lr * m end }"},
    {"a transposed state",
     "return optimizer { name = 'tr', hyper = { lr = 0.1 },\n"
     "  state = { m = zeros('elem', 'q8') },\n"
     "  matrix = function() m = lerp(m, g, 0.1)  p = p - lr * mm(mm(g, m.T), m) end,\n"
     "  step = function() m = lerp(m, g, 0.1)  p = p - lr * m end }"},
    {"stored and folded", "return optimizer { name = 'st', hyper = { lr = 0.1 },\n"
                          "  state = { m = zeros('elem', 'f8'), r = zeros 'row' },\n"
                          "  matrix = function() r = lerp(r, rowmean(abs(m)), 0.5)  every(2, "
                          "function() m = lerp(m, g / (1 + r), 0.1) end)\n"
                          "    p = p - lr * m / (1 + slice.norm(m)) end,\n"
                          "  step = function() m = lerp(m, g, 0.1)  p = p - lr * m end }"},
};
enum { NFOLDING = sizeof folding / sizeof *folding };

static double *read_state(Fixture *f, int k, const char *name, int64_t *n)
{
    optc_state_view v;
    OK(optc_state(f->binding, k, name, &v));
    double *x = malloc(8 * (size_t)(v.count + 1));
    OK(optc_state_read(f->binding, k, name, x, v.count));
    *n = v.count;
    return x;
}

static const CodeType *type_of(Fixture *f, int k, const char *name)
{
    optc_state_view v;
    OK(optc_state(f->binding, k, name, &v));
    for (int i = 0; i < NCODES; i++)
        if (v.type == code_types[i].type)
            return &code_types[i];
    return NULL;
}

/* States of both differ by one step of the code at most, or by 1e-5 where they are f32. */
static void states_near(Fixture *a, Fixture *b, int k, const char *name)
{
    int64_t n;
    double *x = read_state(a, k, name, &n), *y = read_state(b, k, name, &n);
    const CodeType *c = type_of(a, k, name);
    for (int64_t i = 0; i < n; i++) {
        double most = 0, bound = 1e-5 * (1 + fabs(x[i]));
        for (int64_t j = i / OPTC_CODED * OPTC_CODED;
             c && j < n && j < (i / OPTC_CODED + 1) * OPTC_CODED; j++)
            most = fmax(most, fmax(fabs(x[j]), fabs(y[j])));
        bound = c ? 1.05 * code_bound(c, (float)fmax(fabs(x[i]), fabs(y[i])), (float)most) : bound;
        EACH(fabs(x[i] - y[i]) <= bound,
             "state %s of tensor %d, element %lld: %.9g, evaluator %.9g", name, k, (long long)i,
             x[i], y[i]);
    }
    free(x);
    free(y);
}

/* Both take every step from the same bytes. */
static void copy_states(Fixture *to, Fixture *from)
{
    for (int s = 0; s < optc_rule_states(from->rule); s++)
        for (int k = 0; k < from->n; k++) {
            optc_state_info info;
            optc_state_view v, w;
            int has = 0;
            OK(optc_rule_state(from->rule, s, &info));
            if (strcmp(info.domain, "group"))
                OK(optc_has_state(from->binding, k, info.name, &has));
            if (!has)
                continue;
            OK(optc_state(from->binding, k, info.name, &v));
            OK(optc_state(to->binding, k, info.name, &w));
            ck_assert(v.type == w.type && v.count == w.count);
            const ProgType *types = from->rule->program->type;
            memcpy(w.data, v.data,
                   (size_t)stored_bytes(types, (int)v.type - 1, v.count, from->count[k]));
        }
    for (int k = 0; k < from->n; k++)
        memcpy(to->p[k], from->p[k], 4 * (size_t)from->count[k]);
}

/* A rule takes four steps natively and on the evaluator. */
static void near_evaluator(const char *label, const optc_rule_options *ro)
{
    static const TestShape shape[] = {
        {1, {4097}}, {2, {64, 64}}, {2, {129, 37}}, {2, {30, 30}}, {2, {37, 200}}};
    enum { N = sizeof shape / sizeof *shape };
    Fixture a, b;
    fix_open(&a, NULL, ro, shape, N, NULL, 0);
    fix_open(&b, &(optc_engine_options){.compiler = "", .cache_dir = "", .no_builtin = 1}, ro,
             shape, N, NULL, 0);
    ck_assert(optc_rule_native(a.rule) && !optc_rule_native(b.rule));
    for (int step = 1; step <= 4; step++) {
        set_grads(&a, step);
        set_grads(&b, step);
        copy_states(&b, &a);
        OK(optc_step(a.binding));
        OK(optc_step(b.binding));
        for (int k = 0; k < N; k++) {
            for (int64_t i = 0; i < a.count[k]; i++) {
                double x = (double)((float *)a.p[k])[i], y = (double)((float *)b.p[k])[i];
                EACH(fabs(x - y) <= 1e-5, "%s: p of tensor %d, element %lld: %.9g, evaluator %.9g",
                     label, k, (long long)i, x, y);
            }
            for (int s = 0; s < optc_rule_states(a.rule); s++) {
                optc_state_info info;
                int has = 0;
                OK(optc_rule_state(a.rule, s, &info));
                if (strcmp(info.domain, "group"))
                    OK(optc_has_state(a.binding, k, info.name, &has));
                if (has)
                    states_near(&a, &b, k, info.name);
            }
        }
    }
    fix_close(&a);
    fix_close(&b);
}

START_TEST(evaluator)
{
    near_evaluator(folding[_i].name, &(optc_rule_options){.text = folding[_i].text});
}
END_TEST

/* Rules of the library, one of eight of them; OPTC_ALL=1: all. Not those with products: their
 * states are compared in the suite code_quality. */
START_TEST(library)
{
    const char *name = optc_library_name(_i);
    optc_engine *e;
    optc_rule *r;
    if (strchr(name, '/') || (_i % 8 && !getenv("OPTC_ALL")))
        return;
    OK(optc_open(&(optc_engine_options){.cache_dir = ""}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = name}, &r));
    bool products = rule_has_calls(r);
    OK(optc_release(r));
    OK(optc_close(e));
    if (!products)
        near_evaluator(
            name, &(optc_rule_options){.spec = name, .types = _i % 2 ? "state=f8" : "state=q8"});
}
END_TEST

Suite *codes_suite(void)
{
    Suite *s = suite_create("codes");
    TCase *t = tcase_create("codes");
    tcase_set_timeout(t, 60);
    suite_add_tcase(s, t);
    tcase_add_loop_test(t, every_code, 0, NCODES);
    tcase_add_loop_test(t, values, 0, NCODES);
    tcase_add_loop_test(t, unbiased, 0, NCODES);
    tcase_add_loop_test(t, not_finite, 0, NCODES);
    tcase_add_loop_test(t, compiled, 0, 2);
    tcase_add_loop_test(t, evaluator, 0, NFOLDING);
    tcase_add_loop_test(t, library, 0, optc_library_size());
    return s;
}
