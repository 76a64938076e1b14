/* The compiler's output for a few rules against files: the rule after constant folding (.ir), the
 * plan (.plan) and the stages in C (.c, without the shared code). For more rules also the schedule
 * of a step in one process (.ops) and on the first of three ranks with GPUs (.ops3). A changed
 * output appears as a difference; OPTC_GOLDEN=update accepts it. */
#include "runtime/library/rule/spec_find.h"
#include "runtime/library/schedule/schedule.h"
#include "gen/gen.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

enum { MOST_DIMS = 2, MOST_TENSORS = 4 };
typedef struct Tensors { int n; int64_t dim[MOST_TENSORS][MOST_DIMS]; } Tensors;
static const Tensors usual = {3, {{512, 256}, {256, 1024}, {256}}},
                     one_matrix = {2, {{512, 256}, {256}}},
                     one_tile = {1, {{48, 96}}},
                     two_tiles = {1, {{80, 96}}},
                     four = {4, {{256, 256}, {256, 256}, {256, 256}, {256}}};

/* with a spec's text in all kinds, then those with schedules only */
static const struct {
    const char *file, *spec, *with, *options;
    const Tensors *tensors;
} cases[] = {
    {"adamw", "adamw", NULL, NULL, &usual},
    {"lamb", "lamb", NULL, NULL, &usual},
    {"adafactor", "adafactor", NULL, NULL, &usual},
    {"adamw_clip_cautious_ema", "adamw", "clip(1),cautious,ema(0.999)", NULL, &usual},
    {"sgd_lookahead", "sgd", "lookahead(5,0.5)", NULL, &usual},
    {"muon_two_steps", "muon", NULL, "form=plain,steps=2", &four},
    {"shampoo", "shampoo", NULL, NULL, &one_matrix},
    {"rekls", "rekls", NULL, NULL, &one_matrix},
    {"adamw_sam", "adamw", "sam", NULL, &usual},
    {"prodigy", "prodigy", NULL, NULL, &usual},
    {"schedulefree_adamw", "schedulefree_adamw", NULL, NULL, &usual},
    {"came", "came", NULL, NULL, &one_matrix},
    {"power_cuda", "tests/specs/steps/power.lua", NULL, NULL, &one_tile},
    {"eigh_cuda", "tests/specs/steps/eigh.lua", NULL, NULL, &one_tile},
    {"qr_cuda", "tests/specs/steps/qr.lua", NULL, NULL, &one_tile},
    {"solve_cuda", "tests/specs/steps/solve.lua", NULL, NULL, &two_tiles},
};
/* Cases that have the first three kinds too; the last ones have the steps of calls on a GPU. */
enum { WITH_TEXTS = 6, WITH_STEPS = 4 };
static const char *const kinds[] = {"ir", "plan", "c", "ops", "ops3"};
static bool has_steps(int i) { return i >= COUNT(cases) - WITH_STEPS; }
static bool has_kind(int i, const char *kind)
{
    return i < WITH_TEXTS || !strcmp(kind, "ops") || (!strcmp(kind, "ops3") && !has_steps(i));
}
static const char stages_from[] = "/* ---- the stages of";

static char *golden_path(Arena *a, const char *file, const char *kind)
{
    const char *f = getenv("OPTC_TESTS");
    return arena_printf(a, "%s/golden/%s.%s", f && *f ? f : "tests/specs", file, kind);
}

static char *made_schedule(Arena *a, int i, const char *kind)
{
    Gen g = {0};
    Diag d = {0};
    Source s;
    Buf b = {.arena = a};
    SchedulePlan plan;
    const bool ranks = !strcmp(kind, "ops3"), gpu = ranks || has_steps(i);
    const Tensors *of = cases[i].tensors;
    optc_tensor t[MOST_TENSORS] = {{0}};
    GenOptions o = {.with = cases[i].with, .options = cases[i].options, .find = find_wrapper,
                    .target = gpu ? &target_cuda : NULL};
    for (int k = 0; k < of->n; k++)
        t[k] = (optc_tensor){.rank = of->dim[k][1] ? 2 : 1, .shape = of->dim[k]};
    ck_assert_msg(find_spec(NULL, cases[i].spec, a, &s, &d), "%s", d.text);
    ck_assert_msg(gen_compile(&g, s, &o), "%s", g.diag.text);
    const ScheduleOf at = {t, of->n, 0, ranks ? 3 : 1, 0, gpu, has_steps(i)};
    ck_assert_msg(schedule_plan(program_make(a, g.plan, NULL), &at, false, &plan) == OPTC_OK,
                  "%s: %s", cases[i].file, optc_message());
    schedule_print(&b, plan.binding);
    schedule_plan_free(&plan);
    gen_free(&g);
    return strdup(buf_text(&b));
}

static char *made(Arena *a, int i, const char *kind)
{
    if (!strncmp(kind, "ops", 3))
        return made_schedule(a, i, kind);
    Gen g = {0};
    Diag d = {0};
    Source s;
    Buf b = {0};
    bool c = !strcmp(kind, "c");
    GenOptions o = {.with = cases[i].with,
                    .options = cases[i].options,
                    .find = find_wrapper,
                    .dump = c                     ? NULL
                            : !strcmp(kind, "ir") ? "fold"
                                                  : "plan",
                    .dump_to = c ? NULL : &b};
    ck_assert_msg(find_spec(NULL, cases[i].spec, a, &s, &d), "%s", d.text);
    ck_assert_msg(gen_compile(&g, s, &o), "%s", g.diag.text);
    if (c) {
        char *source =
            gen_emit(&g, &(EmitOptions){.target = &target_c, .command = "test"}, &g.diag);
        ck_assert_msg(source != NULL, "%s", g.diag.text);
        const char *from = strstr(source, stages_from);
        ck_assert_msg(from != NULL, "%s: no line '%s …' in the emitted source", cases[i].file,
                      stages_from);
        buf_puts(&b, from);
        free(source);
    }
    gen_free(&g);
    return buf_take(&b);
}

static char *read_whole(const char *path)
{
    FILE *f = fopen(path, "rb");
    Buf b = {0};
    char piece[4096];
    size_t n;
    if (!f)
        return NULL;
    while ((n = fread(piece, 1, sizeof piece, f)) > 0)
        buf_add(&b, piece, n);
    fclose(f);
    return buf_take(&b);
}

static void write_whole(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s cannot be written", path);
}

static const char *next_line(const char *s)
{
    return s + strcspn(s, "\n") + (s[strcspn(s, "\n")] == '\n');
}

static bool same_line(const char *a, const char *b)
{
    size_t n = strcspn(a, "\n");
    return *a && *b && n == strcspn(b, "\n") && !memcmp(a, b, n);
}

static void put_lines(Buf *b, const char *mark, const char *from, const char *to, int most)
{
    for (; from < to && most > 0; from = next_line(from), most--)
        buf_printf(b, "%s%.*s\n", mark, (int)strcspn(from, "\n"), from);
    if (from < to)
        buf_printf(b, "%s…\n", mark);
}

/* The first place where two texts differ and, if it is within a few lines, where they agree
 * again. */
static char *short_diff(const char *want, const char *got)
{
    enum { AHEAD = 12, SHOWN = 8 };
    Buf b = {0};
    int line = 1;
    for (; same_line(want, got); line++)
        want = next_line(want), got = next_line(got);
    const char *w = want, *g = got;
    for (int reach = 1; reach < 2 * AHEAD && !same_line(w, g); reach++) {
        for (int k = 0; k <= reach && !same_line(w, g); k++) {
            w = want, g = got;
            for (int i = 0; i < k; i++)
                w = next_line(w);
            for (int i = 0; i < reach - k; i++)
                g = next_line(g);
        }
    }
    if (!same_line(w, g)) {
        w = want + strlen(want);
        g = got + strlen(got);
    }
    buf_printf(&b, "line %d:\n", line);
    put_lines(&b, "- ", want, w, SHOWN);
    put_lines(&b, "+ ", got, g, SHOWN);
    return buf_take(&b);
}

START_TEST(golden)
{
    Arena arena = {0};
    int i = _i / COUNT(kinds);
    const char *kind = kinds[_i % COUNT(kinds)], *how = getenv("OPTC_GOLDEN");
    if (!has_kind(i, kind))
        return;
    char *path = golden_path(&arena, cases[i].file, kind), *got = made(&arena, i, kind),
         *want = read_whole(path);
    if (how && !strcmp(how, "update")) {
        if (!want || strcmp(want, got))
            write_whole(path, got);
    } else {
        ck_assert_msg(
            want != NULL,
            "%s cannot be read: run from the repository's root; OPTC_GOLDEN=update makes it anew",
            path);
        if (strcmp(want, got)) {
            char *diff = short_diff(want, got);
            ck_abort_msg("%s (-) and what is made now (+) differ from %sRun this suite with "
                         "OPTC_GOLDEN=update to "
                         "accept it, and look at the whole difference with git.",
                         path, diff);
        }
    }
    free(want);
    free(got);
    arena_free(&arena);
}
END_TEST

/* Every file in the folder belongs to a case: a leftover file would never be read. */
START_TEST(no_strays)
{
    Arena arena = {0};
    char *folder = golden_path(&arena, "", "");
    *strrchr(folder, '/') = 0;
    DIR *d = opendir(folder);
    ck_assert_msg(d != NULL, "%s cannot be read: run from the repository's root", folder);
    for (struct dirent *e; (e = readdir(d));) {
        bool known = e->d_name[0] == '.';
        for (int i = 0; i < COUNT(cases) * COUNT(kinds); i++)
            known = known ||
                    (has_kind(i / COUNT(kinds), kinds[i % COUNT(kinds)]) &&
                     !strcmp(e->d_name, arena_printf(&arena, "%s.%s", cases[i / COUNT(kinds)].file,
                                                     kinds[i % COUNT(kinds)])));
        ck_assert_msg(known, "%s/%s belongs to no case", folder, e->d_name);
    }
    closedir(d);
    arena_free(&arena);
}
END_TEST

/* short_diff shows the right difference. */
START_TEST(diff_is_short)
{
    static const char *const pair[][3] = {{"a\nb\nc\n", "a\nx\nc\n", "line 2:\n- b\n+ x\n"},
                                          {"a\nb\n", "a\nb\nc\n", "line 3:\n+ c\n"},
                                          {"a\nb\nc\n", "a\nc\n", "line 2:\n- b\n"},
                                          {"a\nc\n", "a\nb\nc\n", "line 2:\n+ b\n"},
                                          {"a", "a\nb", "line 2:\n+ b\n"}};
    for (int i = 0; i < COUNT(pair); i++) {
        char *d = short_diff(pair[i][0], pair[i][1]);
        ck_assert_str_eq(d, pair[i][2]);
        free(d);
    }
}
END_TEST

Suite *golden_suite(void)
{
    Suite *s = suite_create("golden");
    TCase *t = tcase_create("golden");
    tcase_add_loop_test(t, golden, 0, COUNT(cases) * COUNT(kinds));
    tcase_add_test(t, no_strays);
    tcase_add_test(t, diff_is_short);
    suite_add_tcase(s, t);
    return s;
}
