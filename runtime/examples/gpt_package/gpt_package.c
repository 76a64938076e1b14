/* The GPT of ../gpt with a package of `optc ship`: the program needs no liboptc, Lua or compiler
 * where it runs.
 *     gpt_package FILE [DEVICE] [adamw_clip|muon] [STEPS] [CHECKPOINT]
 * With CHECKPOINT, the run is saved there at its end, and continues from there if the file
 * exists. */
#include "rules.h"

#include "../gpt/gpt_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void check(rules_status s)
{
    if (s == RULES_OK)
        return;
    fprintf(stderr, "gpt_package: %s: %s\n", rules_status_name(s), rules_message());
    exit(1);
}

static size_t read_text(const char *path, unsigned char *text, size_t most)
{
    FILE *f = path ? fopen(path, "rb") : NULL;
    size_t n = f ? fread(text, 1, most, f) : 0;
    if (f)
        fclose(f);
    if (n > TIME + 1)
        return n;
    fprintf(stderr,
            "usage: gpt_package FILE [best|cpu|cuda] [adamw_clip|muon] [STEPS] [CHECKPOINT]\nFILE "
            "must have "
            "%d characters or more\n",
            TIME + 2);
    exit(2);
}

int main(int argc, char **argv)
{
    static unsigned char text[1 << 20];
    static float *p[WEIGHTS], *g[WEIGHTS];
    static int64_t shape[WEIGHTS][2];
    rules_tensor tensor[WEIGHTS] = {{0}};
    size_t size = read_text(argc > 1 ? argv[1] : NULL, text, sizeof text);
    int steps = argc > 4 ? atoi(argv[4]) : 100;
    rules_checkpoint file = {.path = argc > 5 ? argv[5] : NULL, .params = 1};
    int64_t step = 0;
    uint64_t seed = 1;
    rules_engine *e;
    rules_rule *r;
    rules_binding *b;
    check(rules_open(&(rules_engine_options){.device = argc > 2 ? argv[2] : "best"}, &e));
    check(rules_compile(e, &(rules_rule_options){.spec = argc > 3 ? argv[3] : "adamw_clip"}, &r));
    for (int k = 0; k < WEIGHTS; k++) {
        void *grad;
        gpt_shape(k, shape[k]);
        int64_t n = shape[k][0] * shape[k][1], bytes = n * (int64_t)sizeof(float);
        p[k] = malloc((size_t)bytes);
        g[k] = malloc((size_t)bytes);
        if (!p[k] || !g[k])
            return 1;
        for (int64_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            p[k][i] = ((float)(seed >> 40) / (1 << 24) - 0.5f) * 0.2f;
        }
        tensor[k] = (rules_tensor){.name = gpt_name(k),
                                   .rank = 2,
                                   .shape = shape[k],
                                   .grad_count = n,
                                   .flags = k < FIRST_LAYER ? RULES_USE_STEP : 0};
        check(rules_alloc(e, bytes, NULL, &tensor[k].param));
        check(rules_alloc(e, bytes, NULL, &grad));
        check(rules_copy(e, tensor[k].param, p[k], bytes, NULL));
        tensor[k].grad = grad;
    }
    check(rules_bind(r, &(rules_group){.tensors = tensor, .ntensors = WEIGHTS}, 1, &b));
    printf("%s\n", rules_device_name(e));
    if (file.path && !access(file.path, F_OK)) {
        check(rules_load(&b, 1, &file));
        check(rules_get_t(b, 0, &step));
        printf("continues at step %d\n", (int)step);
    }
    for (; step <= steps; step++) {
        for (int k = 0; k < WEIGHTS; k++) {
            check(rules_copy(e, p[k], tensor[k].param,
                             tensor[k].grad_count * (int64_t)sizeof(float), NULL));
            memset(g[k], 0, (size_t)tensor[k].grad_count * sizeof(float));
        }
        double loss = gpt_loss(p, g, text + (size_t)step * 7919 % (size - TIME - 1));
        if (step % 20 == 0)
            printf("step %4d: loss %.6f\n", (int)step, loss);
        for (int k = 0; k < WEIGHTS; k++)
            check(rules_copy(e, (void *)tensor[k].grad, g[k],
                             tensor[k].grad_count * (int64_t)sizeof(float), NULL));
        check(rules_step(b));
    }
    if (file.path)
        check(rules_save(&b, 1, &file));
    check(rules_unbind(b));
    check(rules_release(r));
    for (int k = 0; k < WEIGHTS; k++) {
        check(rules_free(e, tensor[k].param, NULL));
        check(rules_free(e, (void *)tensor[k].grad, NULL));
        free(p[k]);
        free(g[k]);
    }
    check(rules_close(e));
    return 0;
}
