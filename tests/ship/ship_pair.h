/* Used by compare.c: one rule bound twice to the same tensors, by the library and by the package,
 * and comparisons of parameters, states, hyperparameters and values. */
#ifndef SHIP_PAIR_H
#define SHIP_PAIR_H
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
        lt[k].param = b->a[0].p[k], lt[k].grad = b->a[0].g[k], lt[k].rank = ranks[k],
        lt[k].shape = shapes[k];
        pt[k].param = b->a[1].p[k], pt[k].grad = b->a[1].g[k], pt[k].rank = ranks[k],
        pt[k].shape = shapes[k];
        if (k == 4)
            lt[k].flags = OPTC_AS_VECTOR, pt[k].flags = RULES_AS_VECTOR;
    }
    optc_setting ls[] = {{"lr", 0.02}};
    rules_setting ps[] = {{"lr", 0.02}};
    optc_group lg[] = {{lt, 4, NULL, 0}, {lt + 4, NSHAPE - 4, ls, 1}};
    rules_group pg[] = {{pt, 4, NULL, 0}, {pt + 4, NSHAPE - 4, ps, 1}};
    /* scion: both refuse */
    if (optc_bind(b->lr, lg, 2, &b->lb) != OPTC_OK && strstr(optc_message(), "3 dimensions")) {
        if (rules_bind(b->pr, pg, 2, &b->pb) == RULES_OK ||
            !strstr(rules_message(), "3 dimensions"))
            stop("rules_bind",
                 "the package binds a tensor of three dimensions, and the library does not");
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
        if (rules_step(b->pb) != RULES_ERROR_ARGUMENT ||
            !strstr(rules_message(), "which is not set"))
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
        if (strcmp(info.name, mine.name) || strcmp(info.domain, mine.domain) ||
            (int)info.type != (int)mine.type)
            stop(b->id, "a state is described otherwise");
        for (int k = 0; k < (strcmp(info.domain, "group") ? NSHAPE : 2); k++) {
            optc_state_view v;
            if (optc_state(b->lb, k, info.name, &v) != OPTC_OK) {
                rules_state_view w;
                if (rules_state(b->pb, k, info.name, &w) == RULES_OK)
                    stop(b->id, "a state that the library does not keep");
                continue;
            }
            double *x = malloc(sizeof *x * (size_t)(v.count + 1)),
                   *y = malloc(sizeof *y * (size_t)(v.count + 1));
            LIB(optc_state_read(b->lb, k, info.name, x, v.count));
            PKG(rules_state_read(b->pb, k, info.name, y, v.count));
            if (memcmp(x, y, sizeof *x * (size_t)v.count))
                stop(b->id, "a state differs");
            if (optc_rule_lower_triangle(b->lr, info.name) !=
                rules_rule_lower_triangle(b->pr, info.name))
                stop(b->id, "a state is a lower triangle in one only");
            if (optc_rule_lower_triangle(b->lr, info.name) && v.count > 1) {
                y[1] = 0.5;                               /* in the first row */
                if (optc_state_write(b->lb, k, info.name, y, v.count) == OPTC_OK ||
                    rules_state_write(b->pb, k, info.name, y, v.count) == RULES_OK ||
                    !strstr(rules_message(), "is a lower triangle"))
                    stop(b->id, "a value above the diagonal is written");
            }
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
        if (strcmp(h.name, mine.name) || memcmp(&h.value, &mine.value, 8) || h.lo != mine.lo ||
            h.hi != mine.hi || h.lo_open != mine.lo_open || h.hi_open != mine.hi_open)
            stop(b->id, "a hyperparameter is described otherwise");
        LIB(optc_get_hyper(b->lb, 1, h.name, &x));
        PKG(rules_get_hyper(b->pb, 1, h.name, &y));
        if (memcmp(&x, &y, 8))
            stop(b->id, "a hyperparameter differs");
    }
    if (rules_rule_hyper(b->pr, optc_rule_hypers(b->lr), &mine) != RULES_ERROR_ARGUMENT)
        stop(b->id, "it has more hyperparameters");
    for (int i = 0; i < optc_rule_entries(b->lr); i++)
        if (!rules_rule_entry(b->pr, i) ||
            strcmp(rules_rule_entry(b->pr, i), optc_rule_entry(b->lr, i)))
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
        if (f.computed != g.computed || f.refused != g.refused ||
            memcmp(&f.residual, &g.residual, 8))
            stop(b->id, "what is said of factors differs");
    }
}
#endif
