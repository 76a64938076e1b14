/* Logs what the emulated GPU executes for rules in many situations (cases). Two versions of the
 * library whose logs are equal launch the same kernels on the same arrays in the same order, per
 * rank and stream. tests/parts/launch_log.sh compares two logs; tests/README.md describes them.
 *
 *   launch-log [CASE…] [RULE…]      all cases and rules, or those of these names; --list: names
 *
 * A line is: case and rule | rank and stream | what the program does | what ran. After them, for
 * each rank: calls of the driver. It needs optc.h only, so it compiles against other versions. */
#include "tests/log/log_model.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* the rules of tests/specs/golden; cases may name others below them */
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
    {.name = "soap_stagger", .spec = "soap", .options = "interval=3,stagger=true"},
    {.name = "splus_stagger", .spec = "splus", .options = "interval=3,stagger=true"},
    {.name = "soap", .spec = "soap", .options = "interval=2"},
    {.name = "muon", .spec = "muon"},
    {.name = "shampoo_blocks", .spec = "shampoo", .options = "interval=2,side=8"},
};
enum { NRULES = sizeof rules / sizeof *rules, GOLDEN = 12 };

/* `long` has more than one segment of 4096 elements; pieces of three ranks are uneven */
static const TensorSet usual = {6, {{2, {24, 16}, 0}, {2, {10, 20}, 0}, {3, {4, 4, 6}, 0},
                                    {2, {16, 16}, 0}, {1, {33}, 1}, {1, {4500}, 1}}};
/* several matrices of one shape: batches, and groups of exchanges beside stages */
static const TensorSet alike = {6, {{2, {48, 32}, 0}, {2, {48, 32}, 0}, {2, {48, 32}, 0},
                                    {2, {32, 48}, 0}, {2, {40, 33}, 0}, {1, {99}, 1}}};

static Model model_of(optc_engine *e, const TensorSet *set)
{
    return (Model){.engine = e, .set = set, .label = "b"};
}

static void model_end(Model *m)
{
    model_close(m);
    must(optc_release(m->rule), "optc_release");
    must(optc_close(m->engine), "optc_close");
}

/* ---- steps, one binding ---- */
/* The first run is launched kernel by kernel, the second makes graphs, the third launches them. */
static void plain(const LogRule *r)
{
    Model m = model_of(model_engine(0), &usual);
    model_open(&m, r, NULL);
    model_steps(&m, 4);
    model_end(&m);
}

/* Two cycles of slots, and the first steps of a third: slot lists are made, kept and used again. */
static void staggered(const LogRule *r)
{
    Model m = model_of(model_engine(0), &usual);
    model_open(&m, r, NULL);
    model_steps(&m, 8);
    model_end(&m);
}

/* Tensors 1 and 4 take no part in two steps; other tensors in one. */
static void participation(const LogRule *r)
{
    Model m = model_of(model_engine(0), &usual);
    model_open(&m, r, NULL);
    model_steps(&m, 3);
    model_leave_out(&m, 1 << 1 | 1 << 4);
    model_steps(&m, 2);
    model_leave_out(&m, 1 << 0);
    model_steps(&m, 1);
    model_leave_out(&m, 0);
    model_steps(&m, 3);
    model_end(&m);
}

/* Gradients move at each step, as torch's do; then parameters move once. */
static void moved(const LogRule *r)
{
    Model m = model_of(model_engine(0), &usual);
    model_open(&m, r, NULL);
    model_steps(&m, 2);
    for (int i = 0; i < 3; i++) {
        m.moved = !m.moved;
        model_leave_out(&m, 0);
        model_steps(&m, 1);
    }
    model_move_params(&m);
    model_steps(&m, 2);
    model_end(&m);
}

/* The binding's count, then a tensor's own, then all again. */
static void set_t(const LogRule *r)
{
    Model m = model_of(model_engine(0), &usual);
    model_open(&m, r, NULL);
    model_steps(&m, 2);
    must(optc_set_t(m.binding, -1, m.steps = 10), "optc_set_t");
    model_steps(&m, 2);
    must(optc_set_t(m.binding, 1, 3), "optc_set_t");
    model_steps(&m, 2);
    must(optc_set_t(m.binding, -1, m.steps = 4), "optc_set_t");
    model_steps(&m, 2);
    model_end(&m);
}

/* Tensors with different step counts: more cohorts at each step than before. */
static void cohorts(const LogRule *r)
{
    Model m = model_of(model_engine(0), &usual);
    model_open(&m, r, NULL);
    for (unsigned i = 0; i < 5; i++) {
        model_leave_out(&m, i << 1 & 0x3f);
        model_steps(&m, 1);
    }
    model_leave_out(&m, 0);
    for (int k = 0; k < m.set->n; k++)
        must(optc_set_t(m.binding, k, 3 * k + 1), "optc_set_t");
    model_steps(&m, 3);
    model_end(&m);
}

/* A binding that loads what another one saved after two steps: in the middle of a cycle of 3. */
static void resumed(const LogRule *r)
{
    Model m = model_of(model_engine(0), &usual);
    int64_t bytes = 0;
    optc_checkpoint c = {0};
    model_open(&m, r, NULL);
    model_steps(&m, 2);
    emu.log_mark("save");
    must(optc_save_bytes(&m.binding, 1, &c, &bytes), "optc_save_bytes");
    c.memory = malloc((size_t)bytes);
    c.size = bytes;
    must(optc_save(&m.binding, 1, &c), "optc_save");
    must(optc_unbind(m.binding), "optc_unbind");
    snprintf(m.label, sizeof m.label, "again");
    emu.log_rank(0, m.label);
    model_bind(&m, NULL);
    emu.log_mark("load");
    must(optc_load(&m.binding, 1, &c), "optc_load");
    free(c.memory);
    model_steps(&m, 4);
    model_end(&m);
}

/* The least workspace with which the tensors are stepped in three batches or more. */
static void batches(const LogRule *r)
{
    for (int64_t workspace = (int64_t)1 << 22; workspace > 1 << 10; workspace /= 2) {
        Model m = model_of(model_engine(workspace), &alike);
        optc_held held = {0};
        emu.log_rank(-1, "");
        if (model_try(&m, r) == OPTC_OK)
            must(optc_binding_held(m.binding, &held), "optc_binding_held");
        if (m.binding)
            model_close(&m);
        if (held.batches >= 3) {
            emu.log_rank(0, "b");
            m.steps = 0;
            model_open(&m, r, NULL);
            model_steps(&m, 4);
            model_end(&m);
            return;
        }
        optc_release(m.rule);
        must(optc_close(m.engine), "optc_close");
    }
    check(false, "a workspace for three batches");
}

static void profiled(const LogRule *r)
{
    Model m = model_of(model_engine(0), &usual);
    model_open(&m, r, NULL);
    must(optc_profile_start(), "optc_profile_start");
    model_steps(&m, 3);
    must(optc_profile_stop(), "optc_profile_stop");
    model_steps(&m, 2);
    model_end(&m);
}

/* Tuning during real steps. The clock is that of the emulated GPU. */
static void live(const LogRule *r)
{
    setenv("OPTC_TUNE_LIVE", "0.5", 1);
    optc_engine *e;
    must(optc_open(&(optc_engine_options){.device = "cuda"}, &e), "optc_open");
    Model m = model_of(e, &usual);
    threads_at_once = true;
    model_open(&m, r, NULL);
    model_steps(&m, 12);
    model_end(&m);
}

/* ---- captures and guards ---- */
/* A step that is captured and replayed, then steps outside of the graph. */
static void captured(const LogRule *r)
{
    Model m = model_of(model_engine(0), &usual);
    model_open(&m, r, NULL);
    model_capture(&m, &m.binding, 1);
    model_end(&m);
}

/* A guard that skips the third run. */
static void guarded(const LogRule *r)
{
    Model m = model_of(model_engine(0), &usual);
    void *guard = number_make("guard", 0);
    model_open(&m, r, NULL);
    must(optc_set_guard(m.binding, guard, OPTC_F32), "optc_set_guard");
    for (int i = 0; i < 5; i++) {
        number_set(guard, i == 2);
        model_steps(&m, 1);
    }
    model_end(&m);
}

/* Drivers before CUDA 12.8 have no switch nodes, and those before 12.4 no conditional nodes. */
static void no_switch(const LogRule *r)
{
    setenv("EMU_DRIVER", "12040", 1);
    captured(r);
}
static void no_switch_guarded(const LogRule *r)
{
    setenv("EMU_DRIVER", "12040", 1);
    guarded(r);
}
static void no_conditions(const LogRule *r)
{
    setenv("EMU_DRIVER", "12030", 1);
    captured(r);
}

/* ---- several bindings as one optimizer ---- */
static void joint_of(const LogRule *r, bool capture)
{
    static const optc_type types[] = {OPTC_BF16, OPTC_F32, OPTC_F64};
    static const TensorSet sets[] = {
        {3, {{2, {24, 16}, 0}, {2, {10, 20}, 0}, {1, {4500}, 0}}},
        {2, {{2, {16, 16}, 0}, {1, {33}, 0}}},
        {2, {{2, {12, 8}, 0}, {1, {7}, 0}}},
    };
    enum { SETS = 3 };
    Model m[SETS];
    optc_binding *b[SETS];
    optc_engine *e = model_engine(0);
    for (int i = 0; i < SETS; i++) {
        LogRule of = *r;
        of.param = types[i];
        of.bindings = SETS;
        m[i] = model_of(e, &sets[i]);
        snprintf(m[i].label, sizeof m[i].label, "set%d", i);
        emu.log_rank(0, m[i].label);
        model_open(&m[i], &of, NULL);
        b[i] = m[i].binding;
    }
    emu.log_rank(0, "all");
    must(optc_connect(b, SETS), "optc_connect");
    if (capture)
        model_capture(m, b, SETS);
    else
        models_steps(m, b, SETS, 5);
    for (int i = 0; i < SETS; i++) {
        model_close(&m[i]);
        must(optc_release(m[i].rule), "optc_release");
    }
    must(optc_close(e), "optc_close");
}
static void joint(const LogRule *r) { joint_of(r, false); }
static void joint_captured(const LogRule *r) { joint_of(r, true); }

/* ---- ranks ---- */
enum { MOST_RANKS = 3 };
typedef struct World {
    const LogRule *rule; optc_loopback *loop; int ranks, refused; bool capture, leaves;
} World;
typedef struct RankOf { World *world; Model model; } RankOf;

static void *rank_main(void *at)
{
    RankOf *of = at;
    Model *m = &of->model;
    const World *w = of->world;
    optc_comm comm;
    emu.log_rank(m->rank, m->label);
    must(optc_loopback_comm(w->loop, m->rank, &comm), "optc_loopback_comm");
    model_open(m, w->rule, &comm);
    if (w->capture) {
        model_capture(m, &m->binding, 1);
    } else if (w->refused >= 0) {
        model_steps(m, 2);
        model_leave_out(m, m->rank == w->refused ? 1 << 4 : 0);
        for (int i = 0; i < 2; i++)
            emu.log_note(optc_status_name(model_step(m)));
    } else {
        model_steps(m, 3);
        model_leave_out(m, w->leaves ? 1 << 1 | 1 << 4 : 0);
        model_steps(m, 2);
    }
    model_close(m);
    return NULL;
}

/* Each rank has an engine of its own, as a process has. Engines open and close one after
 * another. */
static void with_ranks(World w, const TensorSet *set, int64_t workspace)
{
    pthread_t thread[MOST_RANKS];
    RankOf of[MOST_RANKS];
    for (int i = 0; i < w.ranks; i++) {
        of[i] = (RankOf){&w, model_of(model_engine(workspace), set)};
        of[i].model.rank = i;
        of[i].model.ranks = w.ranks;
        snprintf(of[i].model.label, sizeof of[i].model.label, "rank%d", i);
    }
    must(optc_loopback_open(w.ranks, of[0].model.engine, &w.loop), "optc_loopback_open");
    for (int i = 0; i < w.ranks; i++)
        check(!pthread_create(&thread[i], NULL, rank_main, &of[i]), "pthread_create");
    for (int i = 0; i < w.ranks; i++)
        pthread_join(thread[i], NULL);
    optc_loopback_close(w.loop);
    for (int i = 0; i < w.ranks; i++) {
        must(optc_release(of[i].model.rule), "optc_release");
        must(optc_close(of[i].model.engine), "optc_close");
    }
}
static void ranks_1(const LogRule *r)
{
    with_ranks((World){.rule = r, .ranks = 1, .refused = -1, .capture = true}, &usual, 0);
}
static void ranks_2(const LogRule *r)
{
    with_ranks((World){.rule = r, .ranks = 2, .refused = -1}, &usual, 0);
}
static void ranks_3(const LogRule *r)
{
    with_ranks((World){.rule = r, .ranks = 3, .refused = -1, .leaves = true}, &usual, 0);
}
/* A tensor has a gradient on two ranks of three. */
static void refused(const LogRule *r)
{
    with_ranks((World){.rule = r, .ranks = 3, .refused = 1}, &usual, 0);
}
/* A workspace in which exchanges are groups of tensors, beside stages. */
static void overlap(const LogRule *r)
{
    with_ranks((World){.rule = r, .ranks = 3, .refused = -1}, &alike, 1 << 18);
}

/* ---- the table of cases ---- */
/* only: the rules of the case; NULL: the golden ones */
typedef struct Case { const char *name; void (*run)(const LogRule *r); const char *only; } Case;
static const char with_products[] = " muon_two_steps shampoo rekls soap splus_stagger ";
static const Case cases[] = {
    {"plain", plain, NULL},
    {"staggered", staggered, " shampoo soap_stagger splus_stagger "},
    {"participation", participation, NULL},
    {"moved", moved, NULL},
    {"set_t", set_t, NULL},
    {"cohorts", cohorts, NULL},
    {"resumed", resumed, NULL},
    {"blocks", staggered, " shampoo_blocks "},
    {"batches", batches, with_products},
    {"profiled", profiled, NULL},
    {"live", live, " adamw adamw_clip_cautious_ema muon_two_steps "},
    {"captured", captured, NULL},
    {"captured_more", captured, " soap_stagger splus_stagger shampoo_blocks "},
    {"guarded", guarded, NULL},
    {"no_switch", no_switch, " sgd_lookahead shampoo soap_stagger splus_stagger "},
    {"no_switch_guarded", no_switch_guarded, " sgd_lookahead shampoo soap "},
    {"no_conditions", no_conditions, " sgd_lookahead shampoo rekls soap "},
    {"joint", joint, NULL},
    {"joint_captured", joint_captured, NULL},
    {"ranks_1_captured", ranks_1, NULL},
    {"ranks_2", ranks_2, NULL},
    {"ranks_3", ranks_3, NULL},
    {"refused", refused, " adamw_clip_cautious_ema muon_two_steps shampoo adafactor "},
    {"overlap", overlap, " muon soap shampoo "},
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

static bool takes(const Case *c, int rule)
{
    char name[80];
    snprintf(name, sizeof name, " %s ", rules[rule].name);
    return c->only ? strstr(c->only, name) != NULL : rule < GOLDEN;
}

/* Each case and rule is a process: it has its own environment, and may fail. */
static void run_case(const Case *c, const LogRule *r)
{
    char title[80];
    int status = 0;
    snprintf(title, sizeof title, "%s %s", c->name, r->name);
    fflush(stdout);
    pid_t child = fork();
    if (child) {
        if (child < 0 || waitpid(child, &status, 0) < 0 || WIFSIGNALED(status))
            printf("%s | ended by signal %d\n", title, WTERMSIG(status));
        return;
    }
    emu_open();
    log_title = title;
    emu.log_begin();
    emu.log_rank(0, "b");
    c->run(r);
    log_end();
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv)
{
    const bool lists = argc == 2 && !strcmp(argv[1], "--list");
    for (int c = 0; c < NCASES; c++) {
        if (!lists && !chosen(cases[c].name, true, argc - 1, argv + 1))
            continue;
        if (lists)
            printf("case %s\n", cases[c].name);
        for (int i = 0; i < NRULES; i++)
            if (takes(&cases[c], i) && !lists &&
                chosen(rules[i].name, false, argc - 1, argv + 1))
                run_case(&cases[c], &rules[i]);
    }
    for (int i = 0; i < NRULES && lists; i++)
        printf("rule %s\n", rules[i].name);
    return 0;
}
