/* Compares a package with the library: the same tensors, the same steps, every bit of parameters
 * and states. Links both; the library is the reference.
 *    compare DEVICE TYPE ID SPEC WITH …      each rule ID of the package with SPEC and WITH,
 *                                            compiled by the library.
 *                                            TYPE: of parameters, and types of states after a +:
 *                                            f32+state=q8
 *                                            DEVICE: cpu, cuda, or launches: compares the launches
 *                                            that tests/cuda/fake_driver.c logs
 *    compare best                            prints the device that the library chooses for "best"
 *    compare elsewhere ID SPEC WITH          both refuse memory of another GPU and accept managed
 *                                            memory; needs 2 GPUs
 *    compare time DEVICE ID SPEC WITH [BITS] times a step of 2^BITS elements (2^26; 2^22 on a CPU)
 *    with each
 *    compare first DEVICE ID                 times from opening the package to the end of the first
 *                                            step */
#include "ship_pair.h"

/* The library loads what the package saved, and the package what the library saved; then both go
 * on. */
static void swap_checkpoints(Both *b)
{
    optc_checkpoint lc;
    rules_checkpoint pc;
    memset(&lc, 0, sizeof lc);
    memset(&pc, 0, sizeof pc);
    LIB(optc_save_bytes(&b->lb, 1, &lc, &lc.size));
    PKG(rules_save_bytes(&b->pb, 1, &pc, &pc.size));
    lc.memory = malloc((size_t)lc.size);
    pc.memory = malloc((size_t)pc.size);
    LIB(optc_save(&b->lb, 1, &lc));
    PKG(rules_save(&b->pb, 1, &pc));
    if (lc.size != pc.size || memcmp(lc.memory, pc.memory, (size_t)lc.size))
        stop(b->id, "the checkpoints of the library and the package differ");
    set_grads(b, STEPS, 1);
    run_both(b, STEPS);                        /* one step further, which loading takes back */
    void *swap = lc.memory;
    lc.memory = pc.memory, pc.memory = swap;
    LIB(optc_load(&b->lb, 1, &lc));
    PKG(rules_load(&b->pb, 1, &pc));
    compare_states(b, 1);
    set_grads(b, STEPS, 1);
    run_both(b, STEPS);
    free(lc.memory);
    free(pc.memory);
}

static void steps(Both *b)
{
    int64_t x = 0, y = 0;
    for (int s = 1; s <= STEPS; s++) {
        int moved = s >= 6;
        set_grads(b, s, moved);
        if (s == 4) {
            LIB(optc_set_hyper(b->lb, 0, "lr", 0.037));
            PKG(rules_set_hyper(b->pb, 0, "lr", 0.037));
        }
        for (int k = 0; s == 6 && k < NSHAPE; k++) {
            LIB(optc_set_grad(b->lb, k, b->a[0].g2[k], b->n[k]));
            PKG(rules_set_grad(b->pb, k, b->a[1].g2[k], b->n[k]));
        }
        /* without a gradient for one step, and one step behind from then on */
        if (s == 7 || s == 12)
            leave_out(b, 1);
        if (s == 8 || s == 13)
            leave_out(b, 0);
        if (s == 9)
            compare_states(b, 0.5);
        if (s == 11) {
            LIB(optc_set_t(b->lb, -1, 40));
            PKG(rules_set_t(b->pb, -1, 40));
        }
        run_both(b, s);
    }
    LIB(optc_get_t(b->lb, -1, &x));
    PKG(rules_get_t(b->pb, -1, &y));
    if (x != y || x != 43)
        stop(b->id, "t differs");
    compare_states(b, 1);
    compare_values(b);
    compare_hypers(b);
    swap_checkpoints(b);
}

/* During a capture of the package's stream, calls that would copy are refused and change nothing;
 * the capture continues. A value that was set in spite of that would differ at the first replay. */
static void refuses(const Both *b, const char *call, rules_status s)
{
    if (s != RULES_ERROR_ARGUMENT ||
        !strstr(rules_message(), "not allowed while the binding's stream is being captured") ||
        !strstr(rules_message(), call))
        stop(call, s ? rules_message() : "it was done inside a capture");
    for (int i = 0; i < 2; i++) {
        double x, y;
        LIB(optc_get_hyper(b->lb, i, "lr", &x));
        PKG(rules_get_hyper(b->pb, i, "lr", &y));
        if (x != y)
            stop(call, "refused, and a hyperparameter has changed");
    }
}

static void refused(Both *b)
{
    for (int i = -1; i < 2; i++)
        refuses(b, "rules_set_hyper", rules_set_hyper(b->pb, i, "lr", 0.5));
    refuses(b, "rules_set_t", rules_set_t(b->pb, -1, 3));
    for (int i = 0; i < optc_rule_inputs(b->lr); i++)
        if (optc_set_scalar(b->lb, -1, optc_rule_input(b->lr, i), 0.25) == OPTC_OK)
            refuses(b, "rules_set_scalar",
                    rules_set_scalar(b->pb, -1, optc_rule_input(b->lr, i), 7));
    for (int i = 0; i < optc_rule_states(b->lr); i++) {
        optc_state_info info;
        optc_state_view v;
        LIB(optc_rule_state(b->lr, i, &info));
        if (optc_state(b->lb, 0, info.name, &v) != OPTC_OK)
            continue;
        double *x = calloc((size_t)v.count + 1, sizeof *x);
        x[0] = 7;
        refuses(b, "rules_state_write", rules_state_write(b->pb, 0, info.name, x, v.count));
        refuses(b, "rules_state_read", rules_state_read(b->pb, 0, info.name, x, v.count));
        if (x[0] != 7)
            stop(info.name, "refused, and yet written");
        free(x);
    }
}

/* Captures the package's step in a graph of the caller, replays it, and continues with single
 * steps; the library runs the same steps one by one. */
static void captured(Both *b)
{
    enum { REPLAYS = 5 };
    int (*create)(void **, unsigned), (*begin)(void *, int), (*end)(void *, void **),
        (*make)(void **, void *, unsigned long long), (*launch)(void *, void *), (*sync)(void *);
    void *stream, *graph, *exec;
    int64_t x = 0, y = 0;
    rules_binding *other;
    rules_tensor t;
    memset(&t, 0, sizeof t);
    t.param = b->a[1].p[0], t.rank = ranks[0], t.shape = shapes[0];
    rules_group one = {&t, 1, NULL, 0};
    find("cuStreamCreate", &create);
    find("cuStreamBeginCapture_v2", &begin);
    find("cuStreamEndCapture", &end);
    find("cuGraphInstantiateWithFlags", &make);
    find("cuGraphLaunch", &launch);
    find("cuStreamSynchronize", &sync);
    if (create(&stream, 1))
        stop(b->id, "no stream");
    PKG(rules_set_stream(b->pb, stream));
    if (begin(stream, 0))
        stop(b->id, "no capture");
    refused(b);
    LIB(optc_get_t(b->lb, -1, &x));
    /* no step was captured yet: the host knows t */
    PKG(rules_get_t(b->pb, -1, &y));
    if (x != y)
        stop(b->id, "rules_set_t was refused, and t has changed");
    PKG(rules_step(b->pb));
    refused(b);
    refuses(b, "rules_get_t", rules_get_t(b->pb, -1, &y));
    if (x != y)
        stop(b->id, "rules_get_t was refused, and yet said something");
    /* a binding that is created and freed meanwhile does not matter, nor does setting its scalars,
     * which does not wait */
    PKG(rules_bind(b->pr, &one, 1, &other));
    for (int i = 0; i < rules_rule_inputs(b->pr); i++)
        if (optc_set_scalar(b->lb, -1, rules_rule_input(b->pr, i), 0.25) == OPTC_OK)
            PKG(rules_set_scalar(other, -1, rules_rule_input(b->pr, i), 0.25));
    PKG(rules_unbind(other));
    if (end(stream, &graph) || make(&exec, graph, 0))
        stop(b->id, "no graph");
    for (int i = 0; i < REPLAYS; i++) {
        if (launch(exec, stream) || sync(stream))
            stop(b->id, "a replay failed");
        LIB(optc_step(b->lb));
    }
    LIB(optc_sync(b->lb));
    compare_params(b, STEPS + 1);
    for (int i = 0; i < 3; i++)
        run_both(b, STEPS + 2 + i);
    LIB(optc_get_t(b->lb, -1, &x));
    PKG(rules_get_t(b->pb, -1, &y));
    if (x != y)
        stop(b->id, "t differs after replays");
    compare_states(b, 1);
}

static void one_rule(const char *device, const char *types, const char *id, const char *spec,
                     const char *with)
{
    Both b;
    char type[8];
    const char *plus = strchr(types, '+');
    snprintf(type, sizeof type, "%.*s", (int)strcspn(types, "+"), types);
    memset(&b, 0, sizeof b);
    b.id = id;
    b.type = type;
    rules_engine_options o = pkg_options(device, 3);
    optc_engine_options lo = {.device = device, .threads = 2};
    optc_rule_options ro = {
        .spec = spec, .with = with, .param = lib_type(type), .types = plus ? plus + 1 : NULL};
    LIB(optc_open(&lo, &b.le));
    PKG(rules_open(&o, &b.pe));
    b.pr = pkg_rule(b.pe, id);
    LIB(optc_compile(b.le, &ro, &b.lr));
    make_arrays(&b);
    bind_both(&b);
    set_inputs(&b);
    steps(&b);
    if (gpu && optc_rule_entries(b.lr) == 1)
        captured(&b);
    printf("%s: equal on %s, the library's %s\n", id, rules_device_name(b.pe),
           optc_rule_path(b.lr));
    if (rules_close(b.pe) != RULES_ERROR_BUSY || rules_release(b.pr) != RULES_ERROR_BUSY)
        stop(id, "closed with a binding");
    LIB(optc_unbind(b.lb));
    LIB(optc_release(b.lr));
    LIB(optc_close(b.le));
    PKG(rules_unbind(b.pb));
    if (rules_release(b.pr) != RULES_OK)
        stop(id, rules_message());
    PKG(rules_close(b.pe));
    for (int k = 0; k < NSHAPE * 2 && !gpu; k++) {
        free(b.a[k / NSHAPE].p[k % NSHAPE]);
        free(b.a[k / NSHAPE].g[k % NSHAPE]);
        free(b.a[k / NSHAPE].g2[k % NSHAPE]);
    }
}

/* ---- memory of another GPU ---- */
static void lies(const char *what, int s, const char *message, int here)
{
    if (here ? s != 0
             : s != OPTC_ERROR_ARGUMENT || !strstr(message, "is not in the memory of cuda:"))
        stop(what, s ? message : "memory of another GPU was taken");
}

static void elsewhere(const char *id, const char *spec, const char *with)
{
    int (*retain)(void **, int), (*current)(void *), (*managed)(Ptr *, size_t, unsigned);
    void *context[2], *at[3];
    Ptr p = 0;
    find("cuDevicePrimaryCtxRetain", &retain);
    find("cuCtxSetCurrent", &current);
    find("cuMemAllocManaged", &managed);
    for (int i = 0; i < 2; i++) {
        if (retain(&context[i], i) || current(context[i]))
            stop("cuda", "no second GPU");
        at[i] = room(4096 * 4);
    }
    if (managed(&p, 4096 * 4, 1))
        stop("memory", "none that is managed");
    /* allocated on GPU 1, accessible by all */
    at[2] = (void *)(uintptr_t)p;
    for (int i = 0; i < 2; i++) {
        char device[] = "cuda:0";
        device[5] = (char)('0' + i);
        rules_engine_options o = pkg_options(device, 0);
        optc_engine_options lo = {.device = device};
        optc_rule_options ro = {.spec = spec, .with = with};
        optc_engine *le;
        optc_rule *lr;
        rules_engine *pe;
        rules_rule *pr;
        LIB(optc_open(&lo, &le));
        LIB(optc_compile(le, &ro, &lr));
        PKG(rules_open(&o, &pe));
        pr = pkg_rule(pe, id);
        for (int k = 0; k < 9; k++) {
            void *param = at[k / 3], *grad = (char *)at[k % 3] + 64 * 4;
            int64_t shape[] = {64};
            int here = (k / 3 == i || k / 3 == 2) && (k % 3 == i || k % 3 == 2);
            optc_tensor lt = {.param = param, .grad = grad, .rank = 1, .shape = shape};
            rules_tensor pt;
            optc_binding *lb = NULL;
            rules_binding *pb = NULL;
            memset(&pt, 0, sizeof pt);
            pt.param = param, pt.grad = grad, pt.rank = 1, pt.shape = shape;
            optc_group lg = {&lt, 1, NULL, 0};
            rules_group pg = {&pt, 1, NULL, 0};
            lies("optc_bind", (int)optc_bind(lr, &lg, 1, &lb), optc_message(), here);
            lies("rules_bind", (int)rules_bind(pr, &pg, 1, &pb), rules_message(), here);
            for (int j = 0; here && j < 3; j++) {
                lies("optc_set_grad", (int)optc_set_grad(lb, 0, (char *)at[j] + 128 * 4, 0),
                     optc_message(), j == i || j == 2);
                lies("rules_set_grad", (int)rules_set_grad(pb, 0, (char *)at[j] + 128 * 4, 0),
                     rules_message(), j == i || j == 2);
            }
            LIB(optc_unbind(lb));
            PKG(rules_unbind(pb));
        }
        LIB(optc_release(lr));
        LIB(optc_close(le));
        PKG(rules_release(pr));
        PKG(rules_close(pe));
    }
    printf("%s: memory of another GPU is refused\n", id);
}

/* ---- launches on a GPU that does nothing: the log's lines of both must be equal but for the
 * package's prefix ---- */
static void launches(const char *id, const char *spec, const char *with)
{
    Both b;
    memset(&b, 0, sizeof b);
    b.id = id;
    b.type = "f32";
    rules_engine_options o = pkg_options("cuda", 0);
    optc_engine_options lo = {.device = "cuda"};
    optc_rule_options ro = {.spec = spec, .with = with};
    LIB(optc_open(&lo, &b.le));
    LIB(optc_compile(b.le, &ro, &b.lr));
    PKG(rules_open(&o, &b.pe));
    b.pr = pkg_rule(b.pe, id);
    printf("%s: %s; %s\n", id, optc_rule_path(b.lr), rules_device_name(b.pe));
    make_arrays(&b);
    bind_both(&b);
    for (int s = 0; s < 4; s++) {
        setenv("FAKE_LOG", getenv("LOG_LIBRARY"), 1);
        LIB(optc_step(b.lb));
        setenv("FAKE_LOG", getenv("LOG_PACKAGE"), 1);
        PKG(rules_step(b.pb));
        setenv("FAKE_CAPTURING", s == 1 ? "1" : "0", 1);
    }
    PKG(rules_unbind(b.pb));
    if (rules_release(b.pr) != RULES_OK)
        stop(id, rules_message());
    PKG(rules_close(b.pe));
    LIB(optc_unbind(b.lb));
}

/* ---- times ---- */
static double best_of(Both *b, int side)
{
    double best = 1e30;
    for (int i = 0; i < 12; i++) {
        double t0 = now();
        for (int k = 0; k < 10; k++)
            if (side)
                PKG(rules_step(b->pb));
            else
                LIB(optc_step(b->lb));
        if (side)
            PKG(rules_sync(b->pb));
        else
            LIB(optc_sync(b->lb));
        double t = (now() - t0) / 10;
        best = i && t < best ? t : best;
    }
    return best;
}

/* A package has launches for large tensors only, so small ones may be slower. */
static void times(const char *device, const char *id, const char *spec, const char *with, int bits)
{
    Both b;
    memset(&b, 0, sizeof b);
    int64_t n = (int64_t)1 << (bits ? bits : gpu ? 26 : 22), shape[] = {n / 4096, 4096};
    rules_engine_options o = pkg_options(device, 0);
    optc_engine_options lo = {.device = device};
    optc_rule_options ro = {.spec = spec, .with = with};
    LIB(optc_open(&lo, &b.le));
    PKG(rules_open(&o, &b.pe));
    b.pr = pkg_rule(b.pe, id);
    LIB(optc_compile(b.le, &ro, &b.lr));
    optc_tensor lt = {
        .param = room((size_t)n * 4), .grad = room((size_t)n * 4), .rank = 2, .shape = shape};
    rules_tensor pt;
    memset(&pt, 0, sizeof pt);
    pt.param = room((size_t)n * 4), pt.grad = room((size_t)n * 4), pt.rank = 2, pt.shape = shape;
    optc_group lg = {&lt, 1, NULL, 0};
    rules_group pg = {&pt, 1, NULL, 0};
    LIB(optc_bind(b.lr, &lg, 1, &b.lb));
    PKG(rules_bind(b.pr, &pg, 1, &b.pb));
    double x = best_of(&b, 0), y = best_of(&b, 1), x2 = best_of(&b, 0), y2 = best_of(&b, 1);
    x = x2 < x ? x2 : x;
    y = y2 < y ? y2 : y;
    printf("%s: a step of %lld elements takes %.4f ms by the library, %.4f ms by the package (%.3f "
           "times)\n",
           id, (long long)n, x, y, y / x);
    if (y > x * (!gpu ? 2 : n < 1 << 25 ? 1.2 : 1.03))
        stop(id, "the package is slower");
}

static void first(const char *device, const char *id)
{
    float *p = room(4096 * 4), *g = room(4096 * 4);
    int64_t shape[] = {64, 64};
    rules_engine_options o = pkg_options(device, 0);
    rules_engine *e;
    rules_binding *b;
    rules_tensor t;
    memset(&t, 0, sizeof t);
    t.param = p, t.grad = g, t.rank = 2, t.shape = shape;
    rules_group all = {&t, 1, NULL, 0};
    double t0 = now();
    PKG(rules_open(&o, &e));
    double t1 = now();
    PKG(rules_bind(pkg_rule(e, id), &all, 1, &b));
    PKG(rules_step(b));
    PKG(rules_sync(b));
    double t2 = now();
    printf("%s on %s: opened in %.1f ms, bound and stepped in %.1f ms, %.1f ms in all\n", id,
           rules_device_name(e), t1 - t0, t2 - t1, t2 - t0);
    if (t2 - t0 > 100)
        stop(id, "over 100 ms");
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "launches") && argc > 4) {
        launches(argv[2], argv[3], argv[4]);
        return 0;
    }
    if (!strcmp(mode, "best")) {
        optc_engine *e;
        optc_engine_options o = {.device = "best"};
        LIB(optc_open(&o, &e));
        return printf("%s\n", optc_device_name(e)) < 0;
    }
    if (!strcmp(mode, "elsewhere") && argc > 4) {
        gpu_setup();
        elsewhere(argv[2], argv[3], argv[4]);
        return 0;
    }
    if (argc > 3 &&
        !strcmp(!strcmp(mode, "time") || !strcmp(mode, "first") ? argv[2] : mode, "cuda"))
        gpu_setup();
    if (!strcmp(mode, "time") && argc > 5)
        times(argv[2], argv[3], argv[4], argv[5], argc > 6 ? atoi(argv[6]) : 0);
    else if (!strcmp(mode, "first") && argc > 3)
        first(argv[2], argv[3]);
    else
        for (int i = 3; i + 2 < argc; i += 3)
            one_rule(mode, argv[2], argv[i], argv[i + 1], argv[i + 2]);
    return argc > 3 ? 0 : 2;
}
