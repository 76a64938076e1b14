/* Roofs of the roofline: the rate of large products, with the library that rules use on this
 * device. */
#include "tools/bench/bench.h"

/* Matrices grow from the least to the largest size as long as a product is short. */
enum { LEAST_SIDE = 256, LARGEST_SIDE = 1024, LARGEST_SIDE_GPU = 8192, ROOF_ROUNDS = 5 };
#define ROOF_ROUND 0.02                        /* least seconds of a round */
#define LONGEST_PRODUCT 0.25                   /* seconds */
/* seconds; after them a GPU may be at its limit of power */
#define WARM_WORK 1.0

static optc_type array_type(Product p)
{
    return p == PRODUCT_F64    ? OPTC_F64
           : p == PRODUCT_BF16 ? OPTC_BF16
           : p == PRODUCT_F16  ? OPTC_F16
                               : OPTC_F32;
}

/* *wall: seconds per product by the host's clock; the clock of a fake driver does not advance. */
static bool multiply(Bench *b, const optc_product *x, int times, double *seconds, double *wall)
{
    BenchDevice *d = &b->device;
    bool ok = d->ops->begin(d);
    double began = cli_now();
    for (int i = 0; ok && i < times; i++)
        ok = optc_multiply(b->engine, x) == OPTC_OK;
    double all = 0;
    ok = ok && d->ops->end(d, &all);
    *seconds = all / times;
    *wall = (cli_now() - began) / times;
    return ok;
}

/* Operations per second, the best of some rounds; 0: it cannot be measured. */
static double product_rate(Bench *b, Product product)
{
    BenchDevice *d = &b->device;
    bool gpu = d->ops->async;
    int64_t n = LEAST_SIDE, most = gpu ? LARGEST_SIDE_GPU : LARGEST_SIDE;
    Type t = gpu ? product_info[product].gpu : product_info[product].cpu;
    size_t square = (size_t)(most * most) * (size_t)type_info[t].bytes;
    char *a = d->ops->alloc(d, 3 * square);
    if (!a)
        return 0;
    optc_product x = {.a = a,
                      .b = a + square,
                      .c = a + 2 * square,
                      .m = n,
                      .n = n,
                      .k = n,
                      .type = gpu                      ? array_type(product)
                              : product == PRODUCT_F64 ? OPTC_F64
                                                       : OPTC_F32,
                      .products = gpu && product == PRODUCT_TF32 ? "tf32" : NULL};
    double best = 0, one = 0, s = 0;
    bool ok = d->ops->fill(d, a, t, 3 * most * most, 1.0f) && multiply(b, &x, 1, &s, &one) &&
              multiply(b, &x, 1, &s, &one);
    while (ok && n < most && 8 * one < LONGEST_PRODUCT) {
        x.m = x.n = x.k = n *= 2;
        ok = multiply(b, &x, 1, &s, &one) && multiply(b, &x, 1, &s, &one);
    }
    b->roof_side[product] = n;
    int times = one < ROOF_ROUND ? (int)(ROOF_ROUND / (one > 1e-6 ? one : 1e-6)) + 1 : 1;
    for (int i = 0; ok && i < ROOF_ROUNDS; i++) {
        ok = multiply(b, &x, times, &s, &one);
        best = ok && s > 0 && (best == 0 || s < best) ? s : best;
    }
    double flops = 2.0 * (double)n * (double)n * (double)n, until = cli_now() + WARM_WORK;
    while (ok && gpu && b->sustain && cli_now() < until)
        ok = multiply(b, &x, times, &s, &one);
    b->sustained[product] = ok && gpu && b->sustain && s > 0 ? flops / s : 0;
    if (!ok)
        cli_warning("bench: the rate of products was not measured: %s", optc_message());
    (void)d->ops->sync(d);
    d->ops->free(d, a);
    return best > 0 ? flops / best : 0;
}

Product bench_product(const Bench *b, const Case *c)
{
    Product p = c && c->calls ? c->precision : b->type == T_F64 ? PRODUCT_F64 : PRODUCT_F32;
    return b->device.ops->async || p == PRODUCT_F64 ? p : PRODUCT_F32;
}

void bench_roofs(Bench *b)
{
    bool any[NPRODUCT] = {false};
    any[bench_product(b, NULL)] = b->out != NULL;
    for (int i = 0; i < b->ncase; i++)
        any[bench_product(b, &b->cases[i])] |= b->cases[i].calls;
    for (int p = 0; p < NPRODUCT; p++)
        b->roof[p] = any[p] ? product_rate(b, (Product)p) : 0;
}

/* The larger share of the two roofs, which is the share of the lower one at the stage's
 * intensity. */
double bench_of_roof(const Bench *b, const Case *c, const BenchStage *s)
{
    double memory = b->nstream ? cli_median(b->best, b->nstream) : 0;
    double compute = b->roof[bench_product(b, s->call ? c : NULL)];
    double moved = memory > 0 ? s->bytes / memory : 0,
           computed = compute > 0 ? s->flops / compute : 0;
    return s->seconds > 0 ? (moved > computed ? moved : computed) / s->seconds : 0;
}
