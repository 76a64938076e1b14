/* Runs of `optc try`: tensors, gradients, steps, and what is measured at every step. */
#include "tools/try/try.h"

#include "tools/gradient_steps.h"
#include "tools/race/race_task.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const TryShape try_shapes[TRY_TENSORS] = {{"scalar", 0, {0}},      {"single", 1, {1}},
                                          {"vector", 1, {7}},      {"square", 2, {6, 6}},
                                          {"tall", 2, {12, 4}},    {"wide", 2, {3, 10}},
                                          {"stack", 3, {2, 4, 5}}, {"kernel", 4, {4, 3, 2, 2}}};
const char *const try_grad_names[GRADS] = {"ordinary",    "zero",         "rank one",
                                           "huge (1e15)", "tiny (1e-20)", "one NaN"};

int64_t try_count(const TryShape *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++)
        n *= s->dim[i];
    return n;
}

double try_start(int tensor, int64_t k)
{
    return 0.5 * race_normal(race_bits(11, (uint64_t)tensor), (uint64_t)k);
}

/* Noise around a mean, so that momenta neither vanish nor dominate. f32 holds all of these numbers
 * exactly. */
static double ordinary(int tensor, int step, int again, int64_t k)
{
    enum { STEPS = 1 << 20 };                              /* more than a run has */
    uint64_t key = race_bits(22, (uint64_t)tensor), at = (uint64_t)step + (uint64_t)again * STEPS;
    double mean = race_normal(key, (uint64_t)k),
           noise = race_normal(key, at * TRY_MOST + (uint64_t)k);
    return (float)(0.1 * mean + 0.1 * noise);
}

/* Steps count from 1. again: the number of the gradient in its step, from 0, for rules that take
 * several. */
static double try_gradient(TryGrad kind, int tensor, int step, int again, int64_t k)
{
    const TryShape *s = &try_shapes[tensor];
    int64_t cols = s->rank > 1 ? try_count(s) / s->dim[0] : 1, row = k / cols, col = k % cols;
    switch (kind) {
    case GRAD_ZERO: return 0;
    /* column times row, of dimension 0 x the rest */
    case GRAD_RANK_ONE:
        /* not parallel to the first one of the step */
        row = again % 2 ? try_count(s) / cols - 1 - row : row;
        return (float)((1 + row) * 0.1) * (1 + (double)col) * ((step + again) % 2 ? 1 : 0.5);
    case GRAD_HUGE: return 1e15 * ordinary(tensor, step, again, k);
    case GRAD_TINY: return 1e-20 * ordinary(tensor, step, again, k);
    case GRAD_NAN:
        return tensor == 3 && step == 3 && k == 8 ? NAN : ordinary(tensor, step, again, k);
    default: return ordinary(tensor, step, again, k);
    }
}

typedef struct Memory { _Alignas(64) double param[TRY_MOST], grad[TRY_MOST]; } Memory;

static double get(const void *at, bool f64, int64_t k)
{
    return f64 ? ((const double *)at)[k] : ((const float *)at)[k];
}

static void put(void *at, bool f64, int64_t k, double x)
{
    if (f64)
        ((double *)at)[k] = x;
    else
        ((float *)at)[k] = (float)x;
}

/* Inputs of single elements get ordinary numbers, scalars get 0.5. Others are refused by the
 * caller. */
static optc_status set_inputs(TryRun *r, optc_rule *rule, Memory *input)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < optc_rule_inputs(rule) && s == OPTC_OK; i++) {
        optc_state_info info;
        s = optc_rule_input_info(rule, i, &info);
        if (s == OPTC_OK && !strcmp(info.domain, "group"))
            s = optc_set_scalar(r->binding, -1, info.name, 0.5);
        for (int t = 0; s == OPTC_OK && strcmp(info.domain, "group") && t < TRY_TENSORS; t++) {
            for (int64_t k = 0; k < TRY_MOST; k++)
                put(input[t].grad, info.type == OPTC_F64, k, fabs(ordinary(t, 100 + i, 0, k)));
            s = optc_set_input(r->binding, t, info.name, input[t].grad, 0);
        }
    }
    return s;
}

/* Records which states changed and which values are not finite. */
static void look_at_states(TryRun *r, const optc_rule *rule,
                           double (*last)[TRY_TENSORS][4 * TRY_MOST], int step)
{
    for (int i = 0; i < optc_rule_states(rule) && i < TRY_STATES; i++)
        for (int t = 0; t < TRY_TENSORS; t++) {
            optc_state_info info;
            optc_state_view view;
            double now[4 * TRY_MOST];
            if (optc_rule_state(rule, i, &info) != OPTC_OK ||
                (!strcmp(info.domain, "group") && t) ||
                optc_state(r->binding, t, info.name, &view) != OPTC_OK ||
                view.count > 4 * TRY_MOST ||
                optc_state_read(r->binding, t, info.name, now, view.count) != OPTC_OK)
                continue;
            if (step == 0)
                r->changed[i][t] = 0;
            for (int64_t k = 0; k < view.count; k++) {
                if (step && memcmp(&now[k], &last[i][t][k], sizeof now[k]))
                    r->changed[i][t] = step;
                if (!isfinite(now[k]) && r->bad_state[t] < 0 && r->kind != GRAD_NAN)
                    r->bad_state[t] = i;
            }
            memcpy(last[i][t], now, sizeof *now * (size_t)view.count);
        }
}

static void look_at_params(TryRun *r, const Memory *m, int step)
{
    for (int t = 0; t < TRY_TENSORS; t++) {
        r->bad_params[t] = 0;
        for (int64_t k = 0, n = try_count(&try_shapes[t]); k < n; k++) {
            double x = get(m[t].param, r->f64, k), far = fabs(x - (double)(float)try_start(t, k));
            r->p[t][k] = x;
            if (step == TRY_COMPARED)
                r->compared[t][k] = x;
            r->bad_params[t] += !isfinite(x);
            r->moved[t] = far > r->moved[t] ? far : r->moved[t];
        }
    }
}

static bool is_mode(const char *entry)
{
    return !strcmp(entry, "to_eval") || !strcmp(entry, "to_train");
}

static void set_gradients(const TryRun *r, Memory *m, int step, int again)
{
    for (int t = 0; t < TRY_TENSORS; t++)
        for (int64_t k = 0; k < try_count(&try_shapes[t]); k++)
            put(m[t].grad, r->f64, k, try_gradient(r->kind, t, step, again, k));
}

/* Entries under `gradients` run at their steps, each with a new gradient. Others run first, with
 * the first gradient of the step; to_eval and to_train follow each other after it. */
static optc_status one_step(TryRun *r, const optc_rule *rule, Memory *m, int step)
{
    optc_status s = OPTC_OK;
    const char *entry;
    set_gradients(r, m, step, 0);
    for (int i = 0; (entry = optc_rule_entry(rule, i)) && s == OPTC_OK; i++)
        if (!gradient_listed(rule, entry) && !is_mode(entry))
            s = optc_run(r->binding, entry);
    for (int i = 0; s == OPTC_OK && (entry = optc_rule_gradient(rule, step, i)); i++) {
        set_gradients(r, m, step, i);
        s = optc_run(r->binding, entry);
    }
    return s;
}

static optc_status visit_modes(TryRun *r, const optc_rule *rule)
{
    bool eval = false, train = false;
    for (int i = 0; i < optc_rule_entries(rule); i++) {
        eval = eval || !strcmp(optc_rule_entry(rule, i), "to_eval");
        train = train || !strcmp(optc_rule_entry(rule, i), "to_train");
    }
    optc_status s = eval ? optc_run(r->binding, "to_eval") : OPTC_OK;
    return s == OPTC_OK && train ? optc_run(r->binding, "to_train") : s;
}

bool try_binds(optc_rule *rule, int tensor)
{
    Memory m = {.param = {0}};
    optc_binding *b = NULL;
    optc_tensor t = {.name = try_shapes[tensor].name,
                     .param = m.param,
                     .grad = m.grad,
                     .rank = try_shapes[tensor].rank,
                     .shape = try_shapes[tensor].dim};
    bool ok = optc_bind(rule, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b) == OPTC_OK;
    optc_unbind(b);
    return ok;
}

static optc_status bind_all(TryRun *r, optc_rule *rule, const bool *flat, Memory *m)
{
    optc_tensor tensor[TRY_TENSORS];
    int64_t count[TRY_TENSORS];
    for (int t = 0; t < TRY_TENSORS; t++) {
        for (int64_t k = 0; k < try_count(&try_shapes[t]); k++)
            put(m[t].param, r->f64, k, (float)try_start(t, k));
        tensor[t] = (optc_tensor){.name = try_shapes[t].name,
                                  .param = m[t].param,
                                  .grad = m[t].grad,
                                  .rank = try_shapes[t].rank,
                                  .shape = try_shapes[t].dim};
        count[t] = try_count(&try_shapes[t]);
        if (flat[t]) {
            tensor[t].rank = 1;
            tensor[t].shape = &count[t];
        }
    }
    return optc_bind(rule, &(optc_group){.tensors = tensor, .ntensors = TRY_TENSORS}, 1,
                     &r->binding);
}

bool try_run(TryRun *r, optc_rule *rule, const bool *flat, TryGrad kind, bool f64, int steps)
{
    *r = (TryRun){.kind = kind, .f64 = f64, .steps = steps};
    memset(r->changed, -1, sizeof r->changed);
    memset(r->bad_state, -1, sizeof r->bad_state);
    Memory *m = aligned_alloc(64, 2 * TRY_TENSORS * sizeof *m);
    double (*last)[TRY_TENSORS][4 * TRY_MOST] = calloc(TRY_STATES, sizeof *last);
    if (!m || !last) {
        free(m);
        free(last);
        return cli_error("out of memory"), false;
    }
    memset(m, 0, 2 * TRY_TENSORS * sizeof *m);
    optc_status s = bind_all(r, rule, flat, m);
    s = s == OPTC_OK ? set_inputs(r, rule, m + TRY_TENSORS) : s;
    for (int step = 0; step <= steps && s == OPTC_OK; step++) {
        s = step ? one_step(r, rule, m, step) : OPTC_OK;
        if (s == OPTC_OK && !f64)
            look_at_states(r, rule, last, step);
        look_at_params(r, m, step);
        s = s == OPTC_OK && step ? visit_modes(r, rule) : s;
    }
    if (s == OPTC_OK && !f64)
        s = optc_factors_about(r->binding, -1, &r->factors);
    if (s != OPTC_OK)
        cli_error("%s", optc_message());
    optc_unbind(r->binding);
    r->binding = NULL;
    free(m);
    free(last);
    return s == OPTC_OK;
}
