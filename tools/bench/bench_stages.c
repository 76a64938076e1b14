/* Stages of a case: times and bytes from a profile of its steps, operations from its plan. */
#include "tools/bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- operations ---- */
/* Every arithmetic operation of the spec counts as one, also a root or a power. Selections and
 * conversions count as none. */
static double value_ops(const Graph *g, const Stage *s)
{
    double n = 0;
    for (int i = 0; i < s->nbody; i++) {
        int op = g->n[s->body[i]].op;
        n += op_info[op].kind != K_NUM || op == OP_COPY || op == OP_STORED ? 0
             : op == OP_FMA                                                ? 2
                                                                           : 1;
    }
    for (int i = 0; i < s->nfold; i++)
        n += g->n[s->fold[i].val].op == OP_NORM ? 2 : 1;       /* a norm also squares */
    return n;
}

bool bench_plan_ops(Case *c, const Plan *p)
{
    const PlanEntry *e = &p->entry[spec_entry(p, "step")];
    int most = 0;
    for (int m = 0; m < e->nphase; m++)
        most += e->phase[m].nstage;
    c->ops = calloc((size_t)most + 1, sizeof *c->ops);
    for (int m = 0; c->ops && m < e->nphase; m++)
        for (int i = 0; i < e->phase[m].nstage; i++) {
            const Stage *s = &e->phase[m].stage[i];
            if (is_called(s->kind))
                continue;
            StageAt at = plan_at(p, s->fn);
            StageOps *x = &c->ops[c->nops++];
            emit_stage_name(x->name, p, at.entry->name, at.phase, at.stage);
            x->ops = value_ops(e->phase[m].g, s);
            x->bytes = s->bytes_read + s->bytes_written;
        }
    return c->ops || (cli_error("out of memory"), false);
}

/* The operations of a stage that moves these bytes: the plan has both numbers for one value. Bytes
 * of values of smaller domains, such as a number per group, are few: rounding down drops them.
 * Names in the profile may have a prefix, and end with the line of the spec. */
static double stage_ops(const Case *c, const char *name, double bytes)
{
    size_t n = strcspn(name, " ");
    for (int i = 0; i < c->nops; i++) {
        size_t k = strlen(c->ops[i].name);
        if (k <= n && !strncmp(name + n - k, c->ops[i].name, k))
            return c->ops[i].bytes > 0 ? c->ops[i].ops * floor(bytes / c->ops[i].bytes) : 0;
    }
    return 0;
}

/* ---- times ---- */
static BenchStage *named_stage(Case *c, const char *name)
{
    for (int i = 0; i < c->nstage; i++)
        if (!strcmp(c->stage[i].name, name))
            return &c->stage[i];
    BenchStage *more = realloc(c->stage, sizeof *more * (size_t)(c->nstage + 1));
    if (!more)
        return NULL;
    c->stage = more;
    more += c->nstage++;
    *more = (BenchStage){0};
    snprintf(more->name, sizeof more->name, "%s", name);
    return more;
}

static bool read_recording(Case *c, int nth, double *step)
{
    const Recording *r = profile_lock();
    int entry = 0;
    while (entry < r->nrow && r->row[entry].kind != ROW_ENTRY)
        entry++;
    bool ok = entry < r->nrow && r->row[entry].timed > 0;
    double steps = ok ? (double)r->row[entry].timed : 1;
    *step = ok ? (double)r->row[entry].ns * 1e-9 / steps : 0;
    for (int i = 0; ok && i < r->nrow; i++) {
        const ProfileRow *x = &r->row[i];
        if (x->of != entry || x->kind != ROW_STAGE || !x->count)
            continue;
        BenchStage *s = named_stage(c, x->name);
        if (!s) {
            ok = false;
            break;
        }
        s->each[nth] = (double)x->ns * 1e-9 / steps;
        s->launches = (double)x->count / steps;
        s->bytes = x->bytes / steps;
        s->call = x->flops > 0;
        s->flops = s->call ? x->flops / steps : stage_ops(c, s->name, s->bytes);
    }
    profile_unlock();
    return ok || (cli_error("bench: the profile of %s has no steps", c->label), false);
}

/* On a GPU a replayed graph is one interval of a profile, so the stages are those of a binding
 * without graphs. */
static bool bind_eager(Bench *b, Case *c)
{
    bool set = getenv("OPTC_NO_GRAPHS") != NULL;
    char *runs = c->runs;
    double cold = c->cold, warm = c->warm;
    bench_stop(c);
    c->runs = NULL;
    if (!set)
        setenv("OPTC_NO_GRAPHS", "1", 1);
    bool ok = bench_lib(optc_open(&(optc_engine_options){.device = b->device_name,
                                                         .threads = b->threads,
                                                         .spec_path = b->compile.path,
                                                         .workspace = b->workspace},
                                  &c->engine));
    if (!set)
        unsetenv("OPTC_NO_GRAPHS");
    ok = ok && bench_start(b, c, c->engine);
    free(c->runs);
    c->runs = runs;
    c->cold = cold;
    c->warm = warm;
    return ok;
}

static bool record(Bench *b, Case *c, int nth, double *step)
{
    double seconds, slowest;
    if (!bench_lib(optc_profile_start()))
        return false;
    bool ok = bench_sample(b, c, &seconds, &slowest);
    return bench_lib(optc_profile_stop()) && ok && read_recording(c, nth, step);
}

bool bench_stages(Bench *b, Case *c)
{
    double seconds, slowest, step[RECORDINGS];
    if (b->device.ops->async && (!bind_eager(b, c) || !bench_sample(b, c, &seconds, &slowest)))
        return false;
    for (int i = 0; i < RECORDINGS; i++)
        if (!record(b, c, i, &step[i]))
            return false;
    int chosen = 0;                            /* the median step: its stages add up to it */
    c->profiled = cli_median(step, RECORDINGS);
    while (chosen < RECORDINGS - 1 && step[chosen] != c->profiled)
        chosen++;
    for (int i = 0; i < c->nstage; i++)
        c->stage[i].seconds = c->stage[i].each[chosen];
    return true;
}

BenchStage bench_whole(const Case *c)
{
    BenchStage all = {.name = "whole step"};
    for (int i = 0; i < c->nstage; i++) {
        all.bytes += c->stage[i].bytes;
        all.flops += c->stage[i].flops;
        all.launches += c->stage[i].launches;
    }
    return all;
}
