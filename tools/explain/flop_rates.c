/* Operations per second of this CPU in products and in factors of matrices, with the libraries that
 * rules use here. Measured once and stored with the bandwidth (bandwidth.c). One thread computes
 * the factor of one matrix, and the rate grows with the matrix, so it is measured for two sizes. */
#include "tools/explain/explain.h"

#include "optc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PRODUCT_SIDE = 512, GRAM_LENGTH = 2048, SMALL_SIDE = 256, LARGE_SIDE = 1024 };
enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 100 };
/* Seconds of a round and of all rounds. Rounds are short, so that some are not disturbed by other
 * processes. */
#define LEAST_ROUND 0.003
#define ALL_ROUNDS 0.4
#define MOST_SMALL 0.1                 /* a factor whose small size takes longer is not measured for
                                        * the large one */

typedef struct Work {
    optc_engine *engine;
    bool (*once)(struct Work *w);
    double flops;                      /* operations of one repetition */
    int threads;                       /* threads that it uses */
    double wall, cpu;                  /* seconds of all rounds */
    optc_product product;
    optc_binding *binding;
} Work;

static bool multiply_once(Work *w) { return optc_multiply(w->engine, &w->product) == OPTC_OK; }
static bool step_once(Work *w)
{
    return optc_step(w->binding) == OPTC_OK && optc_sync(w->binding) == OPTC_OK;
}

/* Seconds of one repetition. For a factor, which one thread computes, CPU time is used if it is
 * shorter: it excludes the time that other processes had the core. */
static double timed(Work *w, int times)
{
    double start = cli_now(), cpu = cli_cpu_seconds();
    for (int i = 0; i < times; i++)
        if (!w->once(w))
            return INFINITY;
    double wall = cli_now() - start;
    cpu = cli_cpu_seconds() - cpu;
    w->wall += wall;
    w->cpu += cpu;
    return (w->threads == 1 && cpu > 0 && cpu < wall ? cpu : wall) / times;
}

/* The best of some rounds: a busy machine makes work look slower, never faster. The machine counts
 * as busy if other processes had the CPU for much of the time. */
static double best_rate(Work *w, bool *alone)
{
    double best = INFINITY, one = w->once(w) ? timed(w, 1) : INFINITY;
    int times = one < LEAST_ROUND ? (int)(LEAST_ROUND / (one > 1e-6 ? one : 1e-6)) + 1 : 1;
    w->wall = w->cpu = 0;
    for (int r = 0; r < MOST_ROUNDS && (r < LEAST_ROUNDS || w->wall < ALL_ROUNDS) && isfinite(one);
         r++) {
        double x = timed(w, times);
        best = x < best ? x : best;
    }
    *alone = w->cpu > 0.9 * w->wall * w->threads;
    return isfinite(best) && best > 0 ? w->flops / best : 0;
}

/* ---- products ---- */
/* gram: half of it is computed */
typedef struct ProductAsked { Product product; bool gram; } ProductAsked;

static double measure_product(optc_engine *e, const void *ctx, bool *alone)
{
    const int64_t n = PRODUCT_SIDE, k = GRAM_LENGTH;       /* a of n x k, b of n x n, c of n x n */
    const ProductAsked *ask = ctx;
    bool wide = ask->product == PRODUCT_F64;
    size_t size = wide ? sizeof(double) : sizeof(float), square = (size_t)(n * n) * size;
    char *a = calloc((size_t)(n * k + 2 * n * n), size), *b = a + (size_t)(n * k) * size;
    if (!a)
        return 0;
    for (int64_t i = 0; i < n * (k + n); i++)
        if (wide)
            ((double *)(void *)a)[i] = (double)(i % 7) - 3;
        else
            ((float *)(void *)a)[i] = (float)(i % 7) - 3;
    Work w = {.engine = e,
              .once = multiply_once,
              .threads = optc_threads(e),
              .flops = (double)n * (double)(ask->gram ? k * (n + 1) : 2 * n * n),
              .product = {.a = a,
                          .b = ask->gram ? NULL : b,
                          .c = b + square,
                          .m = n,
                          .n = n,
                          .k = ask->gram ? k : n,
                          .type = wide ? OPTC_F64 : OPTC_F32}};
    double rate = best_rate(&w, alone);
    free(a);
    return rate;
}

/* ---- factors ---- */
typedef struct FactorAsked { Callee callee; int64_t side; } FactorAsked;

static bool bind_factor(optc_engine *e, const FactorAsked *f, float *p, float *g, optc_rule **rule,
                        optc_binding **out)
{
    char text[512];
    int64_t shape[] = {f->side, f->side};
    optc_tensor tensor = {.param = p, .grad = g, .rank = 2, .shape = shape};
    snprintf(text, sizeof text,
             "return optimizer { name = 'factor', state = { A = zeros 'rows', X = zeros 'rows' },\n"
             "  matrix = function()\n"
             "    every(1e9, { offset = 1 }, function() A = gram(g) + eye(1, 'rows') end)\n"
             "    X = %s\n"
             "  end,\n"
             "  step = function() p = p - g end }\n", callee_facts[f->callee].measured);
    return optc_compile(e, &(optc_rule_options){.spec = "factor", .text = text}, rule) == OPTC_OK &&
           optc_bind(*rule, &(optc_group){.tensors = &tensor, .ntensors = 1}, 1, out) == OPTC_OK;
}

static double measure_factor(optc_engine *e, const void *ctx, bool *alone)
{
    const FactorAsked *f = ctx;
    double n = (double)f->side, rate = 0;
    size_t count = (size_t)(f->side * f->side);
    float *p = calloc(2 * count, sizeof *p);
    optc_rule *rule = NULL;
    Work w = {.engine = e, .once = step_once, .threads = 1, .flops = callee_flops(f->callee, n, n)};
    for (size_t i = 0; p && i < count; i++)
        p[count + i] = (float)((i * 2654435761u >> 8) % 1000) * 1e-3f - 0.5f;
    if (p && bind_factor(e, f, p, p + count, &rule, &w.binding))
        rate = best_rate(&w, alone);
    optc_unbind(w.binding);
    optc_release(rule);
    free(p);
    return rate;
}

static double factor_rate(Arena *a, optc_engine *e, Callee c, int64_t side, bool anew, bool *busy)
{
    FactorAsked ask = {c, side};
    const char *what = arena_printf(a, "%s of %d rows", callee_facts[c].name, (int)side);
    return rate_of(a, e, what, anew, measure_factor, &ask, busy);
}

static double product_rate(Arena *a, optc_engine *e, const Plan *p, bool gram, bool anew,
                           bool *busy)
{
    ProductAsked ask = {p->precision == PRODUCT_F64 ? PRODUCT_F64 : PRODUCT_F32, gram};
    const char *what = arena_printf(a, "%s in %s", gram ? "Gram matrices" : "products",
                                    product_info[ask.product].name);
    return rate_of(a, e, what, anew, measure_product, &ask, busy);
}

bool flop_rates(Arena *a, const Plan *p, bool anew, Bandwidth *f)
{
    optc_engine *e;
    bool any[NCALLEE] = {false};
    plan_callees(p, any);
    if (optc_open(&(optc_engine_options){.device = "cpu"}, &e) != OPTC_OK)
        return cli_error("explain: %s", optc_message()), false;
    f->threads = optc_threads(e);
    if (any[CALL_MM]) {
        f->flops[CALL_MM] = product_rate(a, e, p, false, anew, &f->busy);
        f->gram = product_rate(a, e, p, true, anew, &f->busy);
    }
    for (int c = 0; c < NCALLEE; c++)
        if (any[c] && callee_facts[c].measured) {
            double n = SMALL_SIDE, small = factor_rate(a, e, (Callee)c, SMALL_SIDE, anew, &f->busy);
            bool slow = small <= 0 || callee_flops((Callee)c, n, n) / small > MOST_SMALL;
            double large = slow ? small : factor_rate(a, e, (Callee)c, LARGE_SIDE, anew, &f->busy);
            f->flops[c] = small;
            f->growth[c] = small > 0 && large > small
                               ? log(large / small) / log((double)LARGE_SIDE / SMALL_SIDE)
                               : 0;
        }
    optc_close(e);
    return true;
}

/* Beyond the largest measured size the rate is assumed constant. */
double flop_rate(const Bandwidth *f, Callee c, double side)
{
    double n = side < 2 * LARGE_SIDE ? side : 2 * LARGE_SIDE;
    return f->growth[c] > 0 ? f->flops[c] * pow((n > 1 ? n : 1) / SMALL_SIDE, f->growth[c])
                            : f->flops[c];
}
