/* Every spec against trajectories of other implementations (tests/specs/make_refs.py): 20 steps on
 * odd shapes.
 *    evaluator  within 1e-11 of the reference, which is computed in f64 too. Only the order of
 *               additions and the association of products may differ: a few units in the last place
 *               per step.
 *    native     f32 steps 1 to 6, 10, 15 and 20 (OPTC_ALL: each) lie in the evaluator's bounds from
 *               the same state, which follow from the op table. After 20 steps the distance to the
 *               reference is within the sum of the operations' bounds.
 * With OPTC_SHOW set, the suite prints every distance to a reference. */
#include "tests/harness/help.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char name[64], spec[64], with[128], options[128], state[64], tag[32];
    optc_setting hyper[32], other[8];    /* other: what differs for tensors from `second` on, a
                                          * group of their own */
    char *hyper_text, *other_text;
    char schedule[128];                  /* hyperparameters that a schedule multiplies, separated by
                                          * blanks */
    char entry[32], look[2][32];         /* runs at every `period`-th step; entries around a look at
                                          * the weights */
    int period;
    double pull;                         /* this multiple of the weights is added to gradients */
    int nhyper, nother, second, frozen, steps, saved[8], nsaved, nshape;
    TestShape shape[16];                 /* odd_shapes, unless the file has others */
    double *data;                        /* [saved][tensor][value] */
    bool exact32, evaluator_only;
} RefFile;

static RefFile refs[512];
static int nrefs;

/* Files are read before Check runs, so failures are reported here. */
static void need(bool ok, const char *path, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", path, what);
    exit(1);
}

/* Returns the number of settings, which point into `text`. */
static int parse_hyper(const RefFile *r, char *text, optc_setting *set, int room)
{
    int n = 0;
    for (char *save, *w = strtok_r(text, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
        char *eq = strchr(w, '=');
        need(eq && n < room, r->name, "bad hyper line");
        *eq = 0;
        while (*w == ' ')
            w++;
        set[n++] = (optc_setting){w, strtod(eq + 1, NULL)};
    }
    return n;
}

/* "2 lr=0.01,eps=0": tensors from the third on are a group with these hyperparameters. */
static void parse_group(RefFile *r, const char *s)
{
    char *end;
    r->second = (int)strtol(s, &end, 10);
    r->other_text = strdup(end);
    r->nother = parse_hyper(r, r->other_text, r->other, 8);
}

/* "s 7 2x3x4": a scalar, a vector, a tensor of three dimensions. */
static void parse_shapes(RefFile *r, char *s)
{
    r->nshape = 0;
    for (char *save, *w = strtok_r(s, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        need(r->nshape < 16, r->name, "too many shapes");
        TestShape *x = &r->shape[r->nshape++];
        for (x->rank = 0; *w && *w != 's'; w += *w == 'x') {
            need(x->rank < 4, r->name, "too many dimensions");
            x->dim[x->rank++] = strtoll(w, &w, 10);
        }
    }
}

static void parse_line(RefFile *r, char *line)
{
    line[strcspn(line, "\n")] = 0;
    char *v = strchr(line, ' ');
    if (!v)
        return;
    *v++ = 0;
    if (!strcmp(line, "spec"))
        snprintf(r->spec, sizeof r->spec, "%s", v);
    else if (!strcmp(line, "with"))
        snprintf(r->with, sizeof r->with, "%s", v);
    else if (!strcmp(line, "options"))
        snprintf(r->options, sizeof r->options, "%s", v);
    else if (!strcmp(line, "state"))
        snprintf(r->state, sizeof r->state, "%s", v);
    else if (!strcmp(line, "schedule"))
        snprintf(r->schedule, sizeof r->schedule, " %s ", v);
    else if (!strcmp(line, "entry"))
        need(sscanf(v, "%31s %d", r->entry, &r->period) == 2, r->name, "bad entry line");
    else if (!strcmp(line, "look"))
        need(sscanf(v, "%31s %31s", r->look[0], r->look[1]) == 2, r->name, "bad look line");
    else if (!strcmp(line, "pull"))
        r->pull = strtod(v, NULL);
    else if (!strcmp(line, "tag"))
        snprintf(r->tag, sizeof r->tag, "%s", v);
    else if (!strcmp(line, "group"))
        parse_group(r, v);
    else if (!strcmp(line, "frozen"))
        r->frozen = atoi(v);
    else if (!strcmp(line, "hyper"))
        r->nhyper = parse_hyper(r, r->hyper_text = strdup(v), r->hyper, 32);
    else if (!strcmp(line, "shapes"))
        parse_shapes(r, v);
    else if (!strcmp(line, "steps"))
        r->steps = atoi(v);
    else if (!strcmp(line, "exact"))
        r->exact32 = !strcmp(v, "f32");
    else if (!strcmp(line, "native"))
        r->evaluator_only = !strcmp(v, "no");
    else if (!strcmp(line, "saved"))
        for (char *save, *w = strtok_r(v, " ", &save); w && r->nsaved < 8;
             w = strtok_r(NULL, " ", &save))
            r->saved[r->nsaved++] = atoi(w);
}

/* A file contains all elements of a small tensor. Of a larger one it contains every STRIDE-th
 * element, then STRIDE sums, the r-th over the elements r, r + STRIDE, …: an error in any element
 * changes its sum. tests/specs/make_refs.py writes them. */
enum { WHOLE = 128, STRIDE = 31 };
static int64_t values(int64_t n) { return n <= WHOLE ? n : (n + STRIDE - 1) / STRIDE + STRIDE; }

static int64_t total(const RefFile *r)
{
    int64_t sum = 0;
    for (int k = 0; k < r->nshape; k++) {
        int64_t n = 1;
        for (int d = 0; d < r->shape[k].rank; d++)
            n *= r->shape[k].dim[d];
        sum += values(n);
    }
    return sum;
}

static void read_ref(const char *path, const char *name)
{
    RefFile *r = &refs[nrefs];
    memset(r, 0, sizeof *r);
    snprintf(r->name, sizeof r->name, "%.*s", (int)strlen(name) - 4, name);
    memcpy(r->shape, odd_shapes, sizeof *odd_shapes * NODD);
    r->nshape = NODD;
    FILE *f = fopen(path, "rb");
    char line[1024];
    need(f != NULL, path, "cannot be read");
    while (fgets(line, sizeof line, f) && line[0] != '\n')
        parse_line(r, line);
    size_t n = (size_t)(total(r) * r->nsaved);
    r->data = malloc(sizeof(double) * (n + 1));
    need(fread(r->data, sizeof(double), n + 1, f) == n && r->nsaved && r->steps, path,
         "wrong length");
    fclose(f);
    nrefs++;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const RefFile *)a)->name, ((const RefFile *)b)->name);
}

static void read_refs(void)
{
    /* make_refs.py --long makes others */
    const char *folder = getenv("OPTC_REFS") ? getenv("OPTC_REFS") : "tests/specs/refs";
    DIR *d = opendir(folder);
    need(d != NULL, folder, "not found: run from the repository's root");
    for (struct dirent *e; (e = readdir(d));) {
        char path[512];
        size_t n = strlen(e->d_name);
        if (n < 5 || strcmp(e->d_name + n - 4, ".ref"))
            continue;
        need(nrefs < (int)(sizeof refs / sizeof *refs), folder,
             "more files than test_refs.c has room for");
        snprintf(path, sizeof path, "%.200s/%.200s", folder, e->d_name);
        read_ref(path, e->d_name);
    }
    closedir(d);
    qsort(refs, (size_t)nrefs, sizeof *refs, by_name);
}

static void set_grads(Fixture *f, int step, bool second, double pull)
{
    for (int k = 0; k < f->n; k++)
        for (int64_t i = 0; i < f->count[k]; i++) {
            double g = ldexp(ref_value(k, second ? step + 100 : step, i), -(int)(i % 4));
            g += (second ? 0.25 : pull) * type_load(f->type, f->p[k], i);
            type_store(f->type, f->g[k], i, g);
        }
}

/* Warm-up over five steps, then a linear decay, like `rate` in make_refs.py. */
static void set_rates(Fixture *f, const RefFile *r, int step)
{
    double rate = fmin(step / 5.0, 1) * (1 - fmax(step - 5, 0) / 64);
    for (int i = 0; i < r->nhyper; i++) {
        char name[80];
        double other = r->hyper[i].value;
        for (int k = 0; k < r->nother; k++)
            other = strcmp(r->other[k].name, r->hyper[i].name) ? other : r->other[k].value;
        snprintf(name, sizeof name, " %s ", r->hyper[i].name);
        if (!strstr(r->schedule, name))
            continue;
        OK(optc_set_hyper(f->binding, 0, r->hyper[i].name, r->hyper[i].value * rate));
        if (r->second)
            OK(optc_set_hyper(f->binding, 1, r->hyper[i].name,
                              step <= r->frozen ? 0 : other * rate));
    }
}

static double larger(double a, double b) { return b > a || isnan(b) ? b : a; }

/* The largest difference between a tensor's elements and a file's, relative to 1 + |element|. */
static double tensor_distance(const double *got, int64_t n, const double *want)
{
    int64_t step = n <= WHOLE ? 1 : STRIDE;
    double worst = 0;
    for (int64_t i = 0; i < n; i += step, want++)
        worst = larger(worst, fabs(got[i] - *want) / (1 + fabs(*want)));
    for (int64_t k = 0; step > 1 && k < STRIDE; k++, want++) {
        double sum = 0, room = 0;
        for (int64_t i = k; i < n; i += STRIDE) {
            sum += got[i];
            room += 1 + fabs(got[i]);
        }
        worst = larger(worst, fabs(sum - *want) / room);
    }
    return worst;
}

/* The largest difference to the reference at a saved step. */
static double distance(Fixture *f, const RefFile *r, int at)
{
    const double *want = r->data + total(r) * at;
    double worst = 0;
    for (int k = 0; k < f->n; k++) {
        double *got = malloc(sizeof(double) * (size_t)f->count[k]);
        if (*r->state)
            OK(optc_state_read(f->binding, k, r->state, got, f->count[k]));
        for (int64_t i = 0; i < f->count[k] && !*r->state; i++)
            got[i] = type_load(f->type, f->p[k], i);
        worst = larger(worst, tensor_distance(got, f->count[k], want));
        want += values(f->count[k]);
        free(got);
    }
    return worst;
}

/* One element that is off by 1e-6, anywhere, is detected, also in a tensor of which the file has
 * only a sample. */
START_TEST(one_element_off)
{
    enum { N = 33 * 65 };
    double x[N], want[(N + STRIDE - 1) / STRIDE + STRIDE] = {0},
                                                  *sum = want + (N + STRIDE - 1) / STRIDE;
    for (int i = 0; i < N; i++) {
        x[i] = ref_value(3, 1, i);
        want[i / STRIDE] = i % STRIDE ? want[i / STRIDE] : x[i];
        sum[i % STRIDE] += x[i];
    }
    ck_assert_int_eq(values(N), sum + STRIDE - want);
    ck_assert_msg(tensor_distance(x, N, want) <= 1e-15, "%g", tensor_distance(x, N, want));
    for (int i = 0; i < N; i++) {
        x[i] += 1e-6;
        ck_assert_msg(tensor_distance(x, N, want) > 1e-9, "element %d", i);
        x[i] -= 1e-6;
    }
}
END_TEST

/* The sum of the bounds of an element's operations over all steps, in units of the precision. */
static double rounding(const optc_rule *r)
{
    const Phase *ph = &r->library->plan->entry[0].phase[r->library->plan->entry[0].nphase - 1];
    double sum = 0;
    for (int i = 0; i < ph->nstage; i++)
        for (int k = 0; k < ph->stage[i].nbody; k++) {
            double ulp = op_info[ph->g->n[ph->stage[i].body[k]].op].ulp;
            sum += ulp > 0.5 ? ulp : 0.5;
        }
    return sum;
}

static void run(const RefFile *r, optc_type type, bool bounds)
{
    optc_engine_options eo = {.threads = 2,
                              .cache_dir = type == OPTC_F64 ? "" : getenv("OPTC_TEST_CACHE"),
                              .compiler = type == OPTC_F64 ? "" : NULL,
                              .no_builtin = type == OPTC_F64};
    optc_rule_options ro = {.spec = r->spec, .with = r->with, .options = r->options, .param = type};
    Fixture f;
    fix_open_groups(&f, &eo, &ro, r->shape, r->nshape, r->hyper, r->nhyper,
                    &(FixtureGroups){.tag = *r->tag ? r->tag : NULL,
                                     .second = r->second,
                                     .set = r->other,
                                     .nset = r->nother});
    if (type == OPTC_F32)
        ck_assert_msg(optc_rule_native(f.rule), "%s runs as: %s", r->name, optc_rule_path(f.rule));
    bool sam = strstr(r->with, "sam") != NULL;
    const char *entry = sam ? "perturb" : r->entry;
    double ulp = type == OPTC_F64 ? 0 : 0x1p-23,
           allowed = type == OPTC_F64 ? (r->exact32 ? 1e-6 : 1e-11)
                                      : rounding(f.rule) * r->steps * ulp + (r->exact32 ? 1e-6 : 0);
    bool all = getenv("OPTC_ALL") != NULL;
    for (int s = 1; s <= r->steps; s++) {
        bool look = bounds && (all || s <= 6 || s % 5 == 0);
        set_grads(&f, s, false, r->pull);
        set_rates(&f, r, s);
        char *m = NULL;
        if (*entry && (sam ? optc_rule_gradient(f.rule, s, 1) != NULL : (s - 1) % r->period == 0)) {
            set_grads(&f, s, !sam, 0);
            m = look ? step_in_bounds(&f, entry) : (optc_run(f.binding, entry), NULL);
            ck_assert_msg(!m, "%s, %s %d: %s", r->name, entry, s, m);
            set_grads(&f, s, sam, r->pull);
        }
        if (look)
            m = step_in_bounds(&f, "step");
        else
            OK(optc_step(f.binding));
        ck_assert_msg(!m, "%s, step %d: %s", r->name, s, m);
        for (int k = 0; k < r->nsaved; k++)
            if (r->saved[k] == s) {
                if (*r->look[0])
                    OK(optc_run(f.binding, r->look[0]));
                double d = distance(&f, r, k);
                if (*r->look[1])
                    OK(optc_run(f.binding, r->look[1]));
                if (getenv("OPTC_SHOW"))
                    printf("%s, %s, step %d: %.2g\n", r->name,
                           type == OPTC_F64 ? "evaluator" : "native", s, d);
                ck_assert_msg(d <= allowed,
                              "%s, %s, step %d: %.3g from the reference, allowed %.3g", r->name,
                              type == OPTC_F64 ? "evaluator" : "native", s, d, allowed);
            }
    }
    fix_close(&f);
}

START_TEST(meaning) { run(&refs[_i], OPTC_F64, false); }
END_TEST

START_TEST(native)
{
    if (!refs[_i].evaluator_only && !thinned(_i) && sampled_rule(refs[_i].spec, 3))
        run(&refs[_i], OPTC_F32, true);
}
END_TEST

/* The references cover the library: a new spec without one fails here. */
START_TEST(all_covered)
{
    for (int i = 0; i < optc_library_size(); i++) {
        char name[128];
        snprintf(name, sizeof name, "%s", optc_library_name(i));
        const char *wrapper = !strncmp(name, "wrappers/", 9) ? name + 9 : NULL;
        bool found = false;
        for (int k = 0; k < nrefs; k++)
            found = found ||
                    (wrapper ? strstr(refs[k].with, wrapper) != NULL : !strcmp(refs[k].spec, name));
        ck_assert_msg(found, "%s has no reference trajectory in tests/specs/refs", name);
    }
}
END_TEST

Suite *refs_suite(void)
{
    Suite *s = suite_create("refs");
    TCase *t = tcase_create("trajectories");
    read_refs();
    tcase_set_timeout(t, 120);
    tcase_add_test(t, all_covered);
    tcase_add_test(t, one_element_off);
    tcase_add_loop_test(t, meaning, 0, nrefs);
    tcase_add_loop_test(t, native, 0, nrefs);
    suite_add_tcase(s, t);
    return s;
}
