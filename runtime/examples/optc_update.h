/* optc in llm.c (https://github.com/karpathy/llm.c), which trains GPT-2 in C: steps any rule in
 * place of its gpt2_update, which is AdamW. Tried with commit f1e2ace: the losses of adamw equal
 * llm.c's own to 1e-6 over 40 steps, and muon+clip(1) ends at a loss of 3.44 instead of 5.00 on a
 * model of two layers.
 *
 * 1. Put this file beside train_gpt2.c, and add #include "optc_update.h" before main.
 * 2. Add `optc_binding *b = NULL;` at the start of main, and replace the call of gpt2_update by
 *
 *        if (!b) {                          // gpt2_backward allocates gradients at its first call
 *            b = gpt2_bind(&model, "cpu", "adamw");         // or "muon+clip(1)", "./mine.lua"
 *            optc_set_hyper(b, 0, "lr", 1e-4);
 *            optc_set_hyper(b, 0, "weight_decay", 0);
 *        }
 *        if (optc_step(b))
 *            fprintf(stderr, "optc: %s\n", optc_message());
 *
 * 3. Compile with $(pkg-config --cflags --libs optc) after the other flags.
 *
 * In train_gpt2.cu the weights are in GPU memory: pass "cuda", and call
 * optc_set_stream(b, main_stream) once. */
#include <optc.h>

/* Binds every weight of every layer as a tensor of its own; llm.c keeps the layers of a kind in one
 * array. The embeddings are matrices by shape: OPTC_USE_STEP lets matrix rules step them like
 * vectors, as the rules' authors do. */
static optc_binding *gpt2_bind(GPT2 *m, const char *device, const char *rule)
{
    static const char *names[NUM_PARAMETER_TENSORS] = {
        "wte",  "wpe",  "ln1w", "ln1b", "qkvw",    "qkvb",    "attprojw", "attprojb",
        "ln2w", "ln2b", "fcw",  "fcb",  "fcprojw", "fcprojb", "lnfw",     "lnfb"};
    int64_t C = m->config.channels;
    optc_engine *e;
    optc_rule *r;
    optc_binding *b = NULL;
    optc_tensor *t = calloc(NUM_PARAMETER_TENSORS * m->config.num_layers, sizeof *t);
    int64_t (*shape)[2] = calloc(NUM_PARAMETER_TENSORS * m->config.num_layers, sizeof *shape);
    int n = 0;
    float *p = m->params_memory, *g = m->grads_memory;
    for (int k = 0; k < NUM_PARAMETER_TENSORS; k++) {
        int layers = k >= 2 && k <= 13 ? m->config.num_layers : 1;
        int64_t count = (int64_t)m->param_sizes[k] / layers, cols = k == 12 ? 4 * C : C;
        for (int l = 0; l < layers; l++, n++, p += count, g += count) {
            int matrix = k < 2 || k == 4 || k == 6 || k == 10 || k == 12;
            shape[n][0] = matrix ? count / cols : count;
            shape[n][1] = cols;
            t[n] = (optc_tensor){.name = names[k],
                                 .param = p,
                                 .grad = g,
                                 .rank = matrix ? 2 : 1,
                                 .shape = shape[n],
                                 .flags = k < 2 ? OPTC_USE_STEP : 0};
        }
    }
    optc_group all = {.tensors = t, .ntensors = n};
    if (optc_open(&(optc_engine_options){.device = device}, &e) ||
        optc_compile(e, &(optc_rule_options){.spec = rule}, &r) || optc_bind(r, &all, 1, &b)) {
        fprintf(stderr, "optc: %s\n", optc_message());
        exit(1);
    }
    free(t);
    free(shape);
    return b;
}
