/* Logs what the emulated GPU executes for rules in many situations (cases). Two versions of the
 * library whose logs are equal launch the same kernels on the same arrays in the same order, per
 * rank and stream. tests/log/compare.sh compares two logs; tests/README.md describes them.
 *
 *   launch-log [CASE…] [RULE…]        all cases and rules, or those of these names; --list: names
 *
 * A line is: case and rule | rank and stream | what the program does | what ran. At the end of each
 * rank: calls of the driver. This file needs optc.h only, so it compiles against other versions. */
#include "tests/log/log_model.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const LogRule rules[] = {
    {.name = "adamw", .spec = "adamw"},
    {.name = "lamb", .spec = "lamb"},
    {.name = "adafactor", .spec = "adafactor"},
    {.name = "adamw_clip_cautious_ema", .spec = "adamw", .with = "clip(1),cautious,ema(0.999)"},
    {.name = "sgd_lookahead", .spec = "sgd", .with = "lookahead(2,0.5)"},
    {.name = "muon_two_steps", .spec = "muon", .options = "form=plain,steps=2"},
    {.name = "shampoo", .spec = "shampoo", .options = "interval=3,side=16"},
    {.name = "rekls", .spec = "rekls"},
    {.name = "adamw_sam", .spec = "adamw", .with = "sam"},
    {.name = "prodigy", .spec = "prodigy"},
    {.name = "schedulefree_adamw", .spec = "schedulefree_adamw"},
    {.name = "came", .spec = "came"},
};
enum { NRULES = sizeof rules / sizeof *rules };

/* `long` has more than one segment of 4096 elements; pieces of three ranks are uneven */
static const TensorSet usual = {6, {{2, {24, 16}, 0}, {2, {10, 20}, 0}, {3, {4, 4, 6}, 0},
                                    {2, {16, 16}, 0}, {1, {33}, 1}, {1, {4500}, 1}}};

static Model model_of(optc_engine *e)
{
    return (Model){.engine = e, .set = &usual, .label = "b"};
}

static void model_end(Model *m)
{
    model_close(m);
    must(optc_release(m->rule), "optc_release");
    must(optc_close(m->engine), "optc_close");
}

/* ---- cases ---- */
/* The first run is launched kernel by kernel, the second makes graphs, the third launches them. */
static void plain(const LogRule *r)
{
    Model m = model_of(model_engine(0));
    model_open(&m, r, NULL);
    model_steps(&m, 4);
    model_end(&m);
}

/* A step that is captured and replayed, then steps outside of the graph. */
static void captured(const LogRule *r)
{
    Model m = model_of(model_engine(0));
    void *stream, *graph, *exec;
    model_open(&m, r, NULL);
    check(!emu.stream_create(&stream, 1), "cuStreamCreate");
    must(optc_set_stream(m.binding, stream), "optc_set_stream");
    model_steps(&m, 2);
    emu.log_mark("capture");
    check(!emu.begin_capture(stream, 1), "cuStreamBeginCapture");
    optc_status s = OPTC_OK;
    const char *entry;
    for (int i = 0; s == OPTC_OK && (entry = optc_rule_gradient(m.rule, 3, i)); i++)
        s = optc_run(m.binding, entry);
    if (s != OPTC_OK)
        emu.log_mark("refused");
    bool ok = !emu.end_capture(stream, &graph) && graph;
    if (ok && s == OPTC_OK) {
        check(!emu.instantiate(&exec, graph, 0), "cuGraphInstantiate");
        for (int i = 0; i < 4; i++) {
            emu.log_mark((const char *[]){"replay 1", "replay 2", "replay 3", "replay 4"}[i]);
            model_gradients(&m);
            check(!emu.launch(exec, stream) && !emu.stream_wait(stream), "cuGraphLaunch");
        }
        m.steps += 4;
        emu.exec_destroy(exec);
    }
    if (ok)
        emu.graph_destroy(graph);
    model_steps(&m, 2);
    model_end(&m);
    emu.stream_destroy(stream);
}

/* A guard that skips the third run. */
static void guarded(const LogRule *r)
{
    Model m = model_of(model_engine(0));
    void *guard = number_make("guard", 0);
    model_open(&m, r, NULL);
    must(optc_set_guard(m.binding, guard, OPTC_F32), "optc_set_guard");
    for (int i = 0; i < 5; i++) {
        number_set(guard, i == 2);
        model_steps(&m, 1);
    }
    model_end(&m);
    emu.release((uintptr_t)guard);
}

/* ---- ranks ---- */
enum { MOST_RANKS = 3 };
typedef struct World { const LogRule *rule; optc_loopback *loop; int ranks; } World;
typedef struct RankOf { World *world; Model model; } RankOf;

static void *rank_main(void *at)
{
    RankOf *of = at;
    Model *m = &of->model;
    optc_comm comm;
    emu.log_rank(m->rank, m->label);
    must(optc_loopback_comm(of->world->loop, m->rank, &comm), "optc_loopback_comm");
    model_open(m, of->world->rule, &comm);
    model_steps(m, 4);
    model_close(m);
    return NULL;
}

/* Each rank has an engine of its own, as a process has. Engines open and close one after another. */
static void with_ranks(const LogRule *r, int ranks)
{
    World w = {.rule = r, .ranks = ranks};
    pthread_t thread[MOST_RANKS];
    RankOf of[MOST_RANKS];
    for (int i = 0; i < ranks; i++) {
        of[i] = (RankOf){&w, model_of(model_engine(0))};
        of[i].model.rank = i;
        of[i].model.ranks = ranks;
        snprintf(of[i].model.label, sizeof of[i].model.label, "rank%d", i);
    }
    must(optc_loopback_open(ranks, of[0].model.engine, &w.loop), "optc_loopback_open");
    for (int i = 0; i < ranks; i++)
        check(!pthread_create(&thread[i], NULL, rank_main, &of[i]), "pthread_create");
    for (int i = 0; i < ranks; i++)
        pthread_join(thread[i], NULL);
    optc_loopback_close(w.loop);
    for (int i = 0; i < ranks; i++) {
        must(optc_release(of[i].model.rule), "optc_release");
        must(optc_close(of[i].model.engine), "optc_close");
    }
}
static void ranks_2(const LogRule *r) { with_ranks(r, 2); }
static void ranks_3(const LogRule *r) { with_ranks(r, 3); }

/* ---- the table of cases ---- */
typedef struct Case { const char *name; void (*run)(const LogRule *r); } Case;
static const Case cases[] = {
    {"plain", plain},   {"captured", captured}, {"guarded", guarded},
    {"ranks_2", ranks_2}, {"ranks_3", ranks_3},
};
enum { NCASES = sizeof cases / sizeof *cases };

/* A name without a match ends the program. */
static bool is_case(const char *name)
{
    for (int i = 0; i < NCASES; i++)
        if (!strcmp(cases[i].name, name))
            return true;
    for (int i = 0; i < NRULES; i++)
        if (!strcmp(rules[i].name, name))
            return false;
    fprintf(stderr, "launch-log: there is no case or rule '%s'; --list lists them\n", name);
    exit(2);
}

static bool chosen(const char *name, bool of_cases, int n, char **names)
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        if (is_case(names[i]) == of_cases && !strcmp(names[i], name))
            return true;
        any = any || is_case(names[i]) == of_cases;
    }
    return !any;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (int i = 0; i < NCASES + NRULES; i++)
            printf("%s %s\n", i < NCASES ? "case" : "rule",
                   i < NCASES ? cases[i].name : rules[i - NCASES].name);
        return 0;
    }
    emu_open();
    for (int c = 0; c < NCASES; c++)
        for (int i = 0; i < NRULES; i++) {
            char title[80];
            if (!chosen(cases[c].name, true, argc - 1, argv + 1) ||
                !chosen(rules[i].name, false, argc - 1, argv + 1))
                continue;
            snprintf(title, sizeof title, "%s %s", cases[c].name, rules[i].name);
            fprintf(stderr, "%s\n", title);
            emu.log_begin();
            emu.log_rank(0, "b");
            cases[c].run(&rules[i]);
            emu.log_rank(-1, "");
            emu.log_finish(stdout, title);
        }
    return 0;
}
