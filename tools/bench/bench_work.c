/* Workloads by name: the tensor shapes of models. */
#include "tools/bench/bench.h"

#include <stdlib.h>
#include <string.h>

struct Work {
    const char *name; int (*shapes)(Dims *out, int64_t a, int64_t b); int64_t a, b;
    const char *about;
};

static int equal(Dims *out, int64_t count, int64_t n)
{
    for (int64_t i = 0; out && i < count; i++)
        out[i] = (Dims){1, {n}};
    return (int)count;
}

static int matrix(Dims *out, int64_t rows, int64_t cols)
{
    if (out)
        out[0] = (Dims){2, {rows, cols}};
    return 1;
}

/* The parameters of GPT-2's layers in order: each layer has a norm, attention, a norm and two
 * linear maps. This is Muon's part: another rule steps the embeddings. */
static int gpt2_layers(Dims *out, int64_t layers, int64_t w)
{
    const Dims layer[] = {{1, {w}},        {1, {w}},     {2, {w, 3 * w}}, {1, {3 * w}},
                          {2, {w, w}},     {1, {w}},     {1, {w}},        {1, {w}},
                          {2, {w, 4 * w}}, {1, {4 * w}}, {2, {4 * w, w}}, {1, {w}}};
    enum { EACH = sizeof layer / sizeof *layer };
    for (int64_t l = 0; out && l < layers; l++)
        memcpy(out + l * EACH, layer, sizeof layer);
    return (int)layers * EACH;
}

/* All parameters of GPT-2: embeddings of tokens and positions, the layers, a norm. */
static int gpt2(Dims *out, int64_t layers, int64_t w)
{
    int n = gpt2_layers(out ? out + 2 : NULL, layers, w) + 4;
    if (!out)
        return n;
    out[0] = (Dims){2, {50257, w}};
    out[1] = (Dims){2, {1024, w}};
    out[n - 2] = out[n - 1] = (Dims){1, {w}};
    return n;
}

/* The matrices of Llama's layers: the query, key, value and output projections; gate, up and down.
 * Keys and values have a quarter as many heads. */
static int llama_matrices(Dims *out, int64_t layers, int64_t w, int64_t inner)
{
    const Dims layer[] = {{2, {w, w}},     {2, {w / 4, w}}, {2, {w / 4, w}}, {2, {w, w}},
                          {2, {inner, w}}, {2, {inner, w}}, {2, {w, inner}}};
    enum { EACH = sizeof layer / sizeof *layer };
    for (int64_t l = 0; out && l < layers; l++)
        memcpy(out + l * EACH, layer, sizeof layer);
    return (int)layers * EACH;
}

static int llama(Dims *out, int64_t layers, int64_t w)
{
    return llama_matrices(out, layers, w, 4 * w);
}
/* Llama 3: the inner layer is 3.5 times as wide. */
static int llama3(Dims *out, int64_t layers, int64_t w)
{
    return llama_matrices(out, layers, w, 7 * w / 2);
}

static const Work works[] = {
    {"2^28", equal, 1, 1 << 28, "one large tensor"},
    {"16384^2", matrix, 16384, 16384, "one large matrix"},
    {"gpt2-124m", gpt2, 12, 768, "GPT-2 small: 12 layers of width 768"},
    {"gpt2-1.5b", gpt2, 48, 1600, "GPT-2 XL: 48 layers of width 1600"},
    {"gpt2-layers", gpt2_layers, 12, 768, "GPT-2 small without its embeddings and last norm"},
    {"llama-1b", llama, 16, 2048, "the matrices of a Llama of 1B: 16 layers of width 2048"},
    {"llama-8b", llama3, 32, 4096, "the matrices of Llama 3 8B: 32 layers of width 4096"},
    {"small5000", equal, 5000, 4096, "many small tensors"},
};
enum { NWORK = sizeof works / sizeof *works };

const char *work_name(const Work *w) { return w->name; }
int work_shapes(const Work *w, Dims *out) { return w->shapes(out, w->a, w->b); }

const Work *work_find(const char *name)
{
    for (int i = 0; i < NWORK; i++)
        if (!strcmp(works[i].name, name))
            return &works[i];
    return NULL;
}

void work_unknown(const char *name, Buf *b)
{
    const char *names[NWORK + 1] = {0};
    for (int i = 0; i < NWORK; i++)
        names[i] = works[i].name;
    cli_near("work", name, names, b);
    buf_puts(b, "\nknown:");
    for (int i = 0; i < NWORK; i++)
        buf_printf(b, " %s", names[i]);
    buf_puts(b, "; '--work list' describes them, '--suite' runs the rows that have bars");
}

/* The number of elements of the scaled shapes; out may be shape, or NULL. */
static double elements(const Dims *shape, int n, double factor, Dims *out)
{
    double all = 0;
    for (int i = 0; i < n; i++) {
        double one = 1;
        Dims d = shape[i];
        for (int k = 0; k < d.rank; k++) {
            int64_t x = (int64_t)((double)d.dim[k] * factor);
            d.dim[k] = x < 1 ? 1 : x;
            one *= (double)d.dim[k];
        }
        if (out)
            out[i] = d;
        all += one;
    }
    return all;
}

void work_list(void)
{
    static Dims shape[8192];
    for (int i = 0; i < NWORK; i++) {
        int n = work_shapes(&works[i], shape);
        printf("  %s", cli_paint(PAINT_HEAD));
        cli_cell(works[i].name, 12);
        printf("%s%5d tensor%s %11.0f elements   %s\n", cli_paint(PAINT_NONE), n,
               n == 1 ? ", " : "s,", elements(shape, n, 1, NULL), works[i].about);
    }
}

bool work_scale(Dims *shape, int n, int64_t want)
{
    double low = 0, high = 1;
    if (elements(shape, n, 1, NULL) <= (double)want)
        return true;
    if (elements(shape, n, 0, NULL) > (double)want)
        return false;
    for (int i = 0; i < 60; i++) {
        double mid = (low + high) / 2;
        *(elements(shape, n, mid, NULL) <= (double)want ? &low : &high) = mid;
    }
    elements(shape, n, low, shape);
    return true;
}

optc_tensor *work_tensors(const char *command, const DimsList *shapes, const char *work,
                          Dims **dims, int *n)
{
    const Work *w = work ? work_find(work) : NULL;
    Buf b = {0};
    if (work && !w) {
        work_unknown(work, &b);
        cli_error("%s: %s", command, buf_text(&b));
        return NULL;
    }
    *n = w ? work_shapes(w, NULL) : shapes->n;
    *dims = calloc((size_t)*n + 1, sizeof **dims);
    optc_tensor *t = calloc((size_t)*n + 1, sizeof *t);
    if (!*dims || !t) {
        cli_error("%s: out of memory", command);
        free(t);
        return NULL;
    }
    if (w)
        work_shapes(w, *dims);
    else
        memcpy(*dims, shapes->v, sizeof **dims * (size_t)*n);
    for (int i = 0; i < *n; i++)
        t[i] = (optc_tensor){.rank = (*dims)[i].rank, .shape = (*dims)[i].dim};
    return t;
}
