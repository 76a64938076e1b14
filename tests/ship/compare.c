/* Compares a package with the library: the same tensors, the same steps, every bit of parameters and states. Links
 * both; the library is the reference.
 *    compare DEVICE TYPE ID SPEC WITH …      each rule ID of the package with SPEC and WITH, compiled by the library.
 *                                            DEVICE: cpu, cuda, or launches: compares the launches that
 *                                            tests/cuda/fake_driver.c logs
 *    compare best                            prints the device that the library chooses for "best"
 *    compare elsewhere ID SPEC WITH          both refuse memory of another GPU and accept managed memory; needs 2 GPUs
 *    compare time DEVICE ID SPEC WITH [BITS] times a step of 2^BITS elements (2^26; 2^22 on a CPU) with each
 *    compare first DEVICE ID                 times from opening the package to the end of the first step */
#include "ship_device.h"

enum { NSHAPE = 9, STEPS = 13 };
static const int64_t shapes[NSHAPE][3] =
    {{7}, {4101}, {33, 65}, {3, 17, 29}, {130, 300}, {0, 5}, {1}, {70000}, {64, 4100}};
static const int ranks[NSHAPE] = {1, 1, 2, 3, 2, 2, 0, 1, 2};

/* ---- both sides ---- */
typedef struct { void *p[NSHAPE], *g[NSHAPE], *g2[NSHAPE]; } Arrays;
typedef struct {
    const char *id, *type;
    int64_t n[NSHAPE];
    Arrays a[2];               /* the library's and the package's */
    optc_engine *le;
    optc_rule *lr;
    optc_binding *lb;
    rules_engine *pe;
    rules_rule *pr;
    rules_binding *pb;
} Both;

static void make_arrays(Both *b)
{
    for (int k = 0; k < NSHAPE; k++) {
        b->n[k] = 1;
        for (int d = 0; d < ranks[k]; d++)
            b->n[k] *= shapes[k][d];
        size_t bytes = (size_t)b->n[k] * (size_t)bytes_of(b->type);
        char *host = malloc(bytes + 64);
        for (int side = 0; side < 2; side++) {
            b->a[side].p[k] = room(bytes);
            b->a[side].g[k] = room(bytes);
            b->a[side].g2[k] = room(bytes);
            fill(host, b->type, b->n[k], 77 + (uint64_t)k);
            put(b->a[side].p[k], host, bytes);
        }
        free(host);
    }
}

static void bind_both(Both *b)
{
    optc_tensor lt[NSHAPE];
    rules_tensor pt[NSHAPE];
    memset(lt, 0, sizeof lt);
    memset(pt, 0, sizeof pt);
    for (int k = 0; k < NSHAPE; k++) {
        lt[k].param = b->a[0].p[k], lt[k].grad = b->a[0].g[k], lt[k].rank = ranks[k], lt[k].shape = shapes[k];
        pt[k].param = b->a[1].p[k], pt[k].grad = b->a[1].g[k], pt[k].rank = ranks[k], pt[k].shape = shapes[k];
        if (k == 4)
            lt[k].flags = OPTC_AS_VECTOR, pt[k].flags = RULES_AS_VECTOR;
    }
    optc_setting ls[] = {{"lr", 0.02}};
    rules_setting ps[] = {{"lr", 0.02}};
    optc_group lg[] = {{lt, 4, NULL, 0}, {lt + 4, NSHAPE - 4, ls, 1}};
    rules_group pg[] = {{pt, 4, NULL, 0}, {pt + 4, NSHAPE - 4, ps, 1}};
    /* scion: both refuse */
    if (optc_bind(b->lr, lg, 2, &b->lb) != OPTC_OK && strstr(optc_message(), "3 dimensions")) {
        if (rules_bind(b->pr, pg, 2, &b->pb) == RULES_OK || !strstr(rules_message(), "3 dimensions"))
            stop("rules_bind", "the package binds a tensor of three dimensions, and the library does not");
        lt[3].flags = OPTC_USE_STEP, pt[3].flags = RULES_USE_STEP;
    } else if (b->lb) {
        LIB(optc_unbind(b->lb));
    }
    LIB(optc_bind(b->lr, lg, 2, &b->lb));
    PKG(rules_bind(b->pr, pg, 2, &b->pb));
}

/* A rule's inputs: scalars, and arrays that do not change. */
static void set_inputs(Both *b)
{
    for (int i = 0; i < optc_rule_inputs(b->lr); i++) {
        const char *name = optc_rule_input(b->lr, i);
        if (!rules_rule_input(b->pr, i) || strcmp(name, rules_rule_input(b->pr, i)))
            stop(b->id, "its inputs differ");
        if (optc_set_scalar(b->lb, -1, name, 0.25) == OPTC_OK) {
            if (rules_set_input(b->pb, 0, name, b->a[1].g2[0], 0) != RULES_ERROR_ARGUMENT)
                stop(b->id, "a scalar taken for an array");
            PKG(rules_set_scalar(b->pb, -1, name, 0.25));
            continue;
        }
        if (rules_step(b->pb) != RULES_ERROR_ARGUMENT || !strstr(rules_message(), "which is not set"))
            stop(b->id, "it stepped without its input");
        for (int k = 0; k < NSHAPE; k++) {
            size_t bytes = (size_t)b->n[k] * (size_t)bytes_of(b->type);
            char *host = malloc(bytes + 64);
            fill(host, b->type, b->n[k], 5000 + (uint64_t)k);
            for (int side = 0; side < 2; side++) {
                void *x = room(bytes);
                put(x, host, bytes);
                if (side)
                    PKG(rules_set_input(b->pb, k, name, x, 0));
                else
                    LIB(optc_set_input(b->lb, k, name, x, 0));
            }
            free(host);
        }
    }
}

static void set_grads(Both *b, int step, int second)
{
    for (int k = 0; k < NSHAPE; k++) {
        size_t bytes = (size_t)b->n[k] * (size_t)bytes_of(b->type);
        char *host = malloc(bytes + 64);
        fill(host, b->type, b->n[k], (uint64_t)(1000 * step + k));
        for (int side = 0; side < 2; side++)
            put(second ? b->a[side].g2[k] : b->a[side].g[k], host, bytes);
        free(host);
    }
}

static void compare_params(const Both *b, int step)
{
    for (int k = 0; k < NSHAPE; k++) {
        size_t bytes = (size_t)b->n[k] * (size_t)bytes_of(b->type);
        char *x = malloc(bytes + 1), *y = malloc(bytes + 1), why[100];
        get(x, b->a[0].p[k], bytes);
        get(y, b->a[1].p[k], bytes);
        snprintf(why, sizeof why, "tensor %d differs after step %d", k, step);
        if (memcmp(x, y, bytes))
            stop(b->id, why);
        free(x);
        free(y);
    }
}

/* Compares the states of both; if scale is not 1, writes them back multiplied by it. */
static void compare_states(const Both *b, double scale)
{
    for (int i = 0; i < optc_rule_states(b->lr); i++) {
        optc_state_info info;
        rules_state_info mine;
        LIB(optc_rule_state(b->lr, i, &info));
        PKG(rules_rule_state(b->pr, i, &mine));
        if (strcmp(info.name, mine.name) || strcmp(info.domain, mine.domain) || (int)info.type != (int)mine.type)
            stop(b->id, "a state is described otherwise");
        for (int k = 0; k < (strcmp(info.domain, "group") ? NSHAPE : 2); k++) {
            optc_state_view v;
            if (optc_state(b->lb, k, info.name, &v) != OPTC_OK) {
                rules_state_view w;
                if (rules_state(b->pb, k, info.name, &w) == RULES_OK)
                    stop(b->id, "a state that the library does not keep");
                continue;
            }
            double *x = malloc(sizeof *x * (size_t)(v.count + 1)), *y = malloc(sizeof *y * (size_t)(v.count + 1));
            LIB(optc_state_read(b->lb, k, info.name, x, v.count));
            PKG(rules_state_read(b->pb, k, info.name, y, v.count));
            if (memcmp(x, y, sizeof *x * (size_t)v.count))
                stop(b->id, "a state differs");
            for (int64_t j = 0; j < v.count; j++)
                x[j] *= scale;
            if (scale != 1) {
                LIB(optc_state_write(b->lb, k, info.name, x, v.count));
                PKG(rules_state_write(b->pb, k, info.name, x, v.count));
            }
            free(x);
            free(y);
        }
    }
}

static void compare_hypers(const Both *b)
{
    rules_hyper mine;
    for (int i = 0; i < optc_rule_hypers(b->lr); i++) {
        optc_hyper h;
        double x, y;
        LIB(optc_rule_hyper(b->lr, i, &h));
        PKG(rules_rule_hyper(b->pr, i, &mine));
        if (strcmp(h.name, mine.name) || memcmp(&h.value, &mine.value, 8) || h.lo != mine.lo || h.hi != mine.hi ||
            h.lo_open != mine.lo_open || h.hi_open != mine.hi_open)
            stop(b->id, "a hyperparameter is described otherwise");
        LIB(optc_get_hyper(b->lb, 1, h.name, &x));
        PKG(rules_get_hyper(b->pb, 1, h.name, &y));
        if (memcmp(&x, &y, 8))
            stop(b->id, "a hyperparameter differs");
    }
    if (rules_rule_hyper(b->pr, optc_rule_hypers(b->lr), &mine) != RULES_ERROR_ARGUMENT)
        stop(b->id, "it has more hyperparameters");
    for (int i = 0; i < optc_rule_entries(b->lr); i++)
        if (!rules_rule_entry(b->pr, i) || strcmp(rules_rule_entry(b->pr, i), optc_rule_entry(b->lr, i)))
            stop(b->id, "its entries differ");
}

static void run_both(Both *b, int step)
{
    /* other entries first: SAM perturbs before it steps */
    for (int e = optc_rule_entries(b->lr) - 1; e >= 0; e--) {
        LIB(optc_run(b->lb, optc_rule_entry(b->lr, e)));
        PKG(rules_run(b->pb, rules_rule_entry(b->pr, e)));
    }
    LIB(optc_sync(b->lb));
    PKG(rules_sync(b->pb));
    compare_params(b, step);
}

/* Excludes every second tensor, with the moved gradients. */
static void leave_out(Both *b, int out)
{
    const void *x[NSHAPE], *y[NSHAPE];
    for (int k = 0; k < NSHAPE; k++) {
        x[k] = out && k % 2 ? NULL : b->a[0].g2[k];
        y[k] = out && k % 2 ? NULL : b->a[1].g2[k];
    }
    LIB(optc_set_grads(b->lb, x, NSHAPE));
    PKG(rules_set_grads(b->pb, y, NSHAPE));
}

static void compare_values(const Both *b)
{
    for (int i = 0; i < optc_rule_values(b->lr); i++) {
        optc_state_info info;
        double x, y;
        LIB(optc_rule_value(b->lr, i, &info));
        if (strcmp(info.domain, "group") && strcmp(info.domain, "tensor"))
            continue;
        /* ABSENT: tensor 1's variant has no such state */
        optc_status status = optc_read_value(b->lb, 1, info.name, &x, 1);
        if ((int)status != (int)rules_read_value(b->pb, 1, info.name, &y, 1))
            stop(b->id, "a value for the reader is there on one side only");
        if (status != OPTC_ERROR_ABSENT)
            LIB(status);
        if (status == OPTC_OK && memcmp(&x, &y, 8))
            stop(b->id, "a value for the reader differs");
    }
    for (int k = 0; k < NSHAPE; k++) {
        int64_t x, y;
        LIB(optc_get_t(b->lb, k, &x));
        PKG(rules_get_t(b->pb, k, &y));
        if (x != y || x != (k % 2 && b->n[k] ? 42 : 43))
            stop(b->id, "t of a tensor differs");
        optc_factors f;
        rules_factors g;
        LIB(optc_factors_about(b->lb, k, &f));
        PKG(rules_factors_about(b->pb, k, &g));
        if (f.computed != g.computed || f.refused != g.refused || memcmp(&f.residual, &g.residual, 8))
            stop(b->id, "what is said of factors differs");
    }
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
}

/* During a capture of the package's stream, calls that would copy are refused and change nothing; the capture
 * continues. A value that was set in spite of that would differ at the first replay. */
static void refuses(const Both *b, const char *call, rules_status s)
{
    if (s != RULES_ERROR_ARGUMENT || !strstr(rules_message(),
            "not allowed while the binding's stream is being captured") || !strstr(rules_message(), call))
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
            refuses(b, "rules_set_scalar", rules_set_scalar(b->pb, -1, optc_rule_input(b->lr, i), 7));
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

/* Captures the package's step in a graph of the caller, replays it, and continues with single steps; the library runs
 * the same steps one by one. */
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
    PKG(rules_get_t(b->pb, -1, &y));                              /* no step was captured yet: the host knows t */
    if (x != y)
        stop(b->id, "rules_set_t was refused, and t has changed");
    PKG(rules_step(b->pb));
    refused(b);
    refuses(b, "rules_get_t", rules_get_t(b->pb, -1, &y));
    if (x != y)
        stop(b->id, "rules_get_t was refused, and yet said something");
    /* a binding that is created and freed meanwhile does not matter, nor does setting its scalars, which does not
     * wait */
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

static void one_rule(const char *device, const char *type, const char *id, const char *spec, const char *with)
{
    Both b;
    memset(&b, 0, sizeof b);
    b.id = id;
    b.type = type;
    rules_engine_options o = pkg_options(device, 3);
    optc_engine_options lo = {.device = device, .threads = 2};
    optc_rule_options ro = {.spec = spec, .with = with, .param = lib_type(type)};
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
    printf("%s: equal on %s, the library's %s\n", id, rules_device_name(b.pe), optc_rule_path(b.lr));
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
    if (here ? s != 0 : s != OPTC_ERROR_ARGUMENT || !strstr(message, "is not in the memory of cuda:"))
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
    at[2] = (void *)(uintptr_t)p;                             /* allocated on GPU 1, accessible by all */
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
                lies("optc_set_grad", (int)optc_set_grad(lb, 0, (char *)at[j] + 128 * 4, 0), optc_message(),
                     j == i || j == 2);
                lies("rules_set_grad", (int)rules_set_grad(pb, 0, (char *)at[j] + 128 * 4, 0), rules_message(),
                     j == i || j == 2);
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

/* ---- launches on a GPU that does nothing: the log's lines of both must be equal but for the package's prefix ---- */
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
    optc_tensor lt = {.param = room((size_t)n * 4), .grad = room((size_t)n * 4), .rank = 2, .shape = shape};
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
    printf("%s: a step of %lld elements takes %.4f ms by the library, %.4f ms by the package (%.3f times)\n", id,
           (long long)n, x, y, y / x);
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
    printf("%s on %s: opened in %.1f ms, bound and stepped in %.1f ms, %.1f ms in all\n", id, rules_device_name(e),
           t1 - t0, t2 - t1, t2 - t0);
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
    if (argc > 3 && !strcmp(!strcmp(mode, "time") || !strcmp(mode, "first") ? argv[2] : mode, "cuda"))
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
