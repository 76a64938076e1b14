/* Measured methods for eigenvectors and roots: which matrices use them, and that none costs
 * accuracy. */
#include "tests/gpu/eigen_rule.h"

#include "runtime/library/rule/gpu_code.h"
#include "runtime/library/tune/launch_search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BY_ROTATIONS = 1, BY_F32 = 2 };

/* The method of the bound call. */
static int found(const One *o)
{
    const GpuCalls *x = o->b->gpu->calls;
    int is = BY_ROTATIONS;
    for (int i = 0; i < x->nstep; i++) {
        const CallStep *s = &x->step[i];
        is &= s->kind == STEP_SOLVER ? ~BY_ROTATIONS : ~0;
        is |= s->kernel == KERNEL_EIGEN_LOAD && s->flags & 256 ? BY_F32 : 0;
        is |= s->kernel == KERNEL_ROOT32_POLY ? BY_F32 : 0;
    }
    return is;
}

static Tuned measured(const GpuEngine *g, MethodWork w, bool f64, EigenMethod method)
{
    Tuned t = {.ms = 1, .model_ms = 2, .samples = 9};
    method_key(g, w, f64, &t.key);
    t.launch.v[KNOB_METHOD] = (int)method;
    return t;
}

static const Tuned *results[4];
static void give(optc_engine *e)
{
    for (int i = 0; i < 4; i++)
        if (results[i])
            ck_assert(tuned_put(&e->library->tuned.user, results[i]));
}

START_TEST(which_method)
{
    SHARED();
    static const char root[] =
        "return optimizer { name = 'one', view = 'last', state = { A = zeros 'rows', X = zeros "
        "'rows' },\n"
        "  matrix = function() X = power(A, -1/4, { relative = %s, last = X })  A = A + 0 * "
        "sum(g)  p = p + 0 * g end, step = function() p = p + 0 * g end }";
    static const struct {
        bool roots;
        const char *relative;
        int64_t n, side;
        bool f64;
        int want, plain;
    } c[] = {{false, "", 1, 16, false, BY_ROTATIONS, 0},
             {false, "", 2, 12, false, BY_ROTATIONS, 0},         /* the nearest row count */
             {false, "", 1, 40, false, 0, 0},                    /* not measured */
             {false, "", 300, 16, false, BY_ROTATIONS, 0},       /* for any number of matrices */
        /* f32 is less than this GPU's model allows */
             {false, "", 1, 64, false, 0, 0},
             {false, "", 1, 16, true, 0, 0},                     /* another type */
             {true, "1/32", 1, 16, false, BY_ROTATIONS | BY_F32, BY_ROTATIONS},
             {true, "1e-6", 1, 16, false, BY_ROTATIONS, BY_ROTATIONS},
             {true, "1/32", 1, 40, false, BY_ROTATIONS, BY_ROTATIONS}};
    for (int i = 0; i < (int)(sizeof c / sizeof *c); i++) {
        if (thinned(i) && i != 4)
            continue;
        char text[600];
        One o, plain;
        snprintf(text, sizeof text, root, c[i].relative);
        GpuEngine g;
        open_one(&plain, c[i].roots ? text : vectors_rule, c[i].n, c[i].side,
                 (How){.f64 = c[i].f64});
        g = *plain.e->gpu;
        /* the expectations are for GPUs with fast f64 */
        if (found(&plain) != c[i].plain && !g.f64_fast) {
            close_one(&plain);
            return;
        }
        Tuned t[] = {measured(&g, (MethodWork){false, 16, 1}, false, EIGEN_ROTATED),
                     measured(&g, (MethodWork){false, 64, 1}, false, EIGEN_F32),
                     measured(&g, (MethodWork){true, 16, 256}, false, EIGEN_F32)};
        for (int k = 0; k < 3; k++)
            results[k] = &t[k];
        ck_assert_msg(found(&plain) == c[i].plain, "%d: %d without results", i, found(&plain));
        between = give;
        open_one(&o, c[i].roots ? text : vectors_rule, c[i].n, c[i].side, (How){.f64 = c[i].f64});
        between = NULL;
        ck_assert_msg(found(&o) == c[i].want, "%d: %d with results", i, found(&o));
        close_one(&o);
        close_one(&plain);
    }
}
END_TEST

/* The library computes up to 256 rows only, whatever a test or a result asks for. */
START_TEST(library_rows)
{
    SHARED();
    for (EigenMethod method = EIGEN_BY_SIZE; method <= EIGEN_F64; method++)
        for (int64_t side = EIGEN_LIBRARY_MOST; side <= EIGEN_LIBRARY_MOST + 1; side++) {
            One o;
            bool library =
                side <= EIGEN_LIBRARY_MOST && method != EIGEN_ROTATED && method != EIGEN_DIVIDED;
            open_one(&o, vectors_rule, 1, side, (How){method, true, 0, 0});
            ck_assert_msg((found(&o) & BY_ROTATIONS) == !library, "method %d, %d rows", method,
                          (int)side);
            close_one(&o);
        }
}
END_TEST

/* Every size occurs once, each with its own name and key. */
START_TEST(sizes)
{
    SHARED();
    static char names[200][64], keys[200][80];
    GpuEngine g;
    int n = 0;
    memset(&g, 0, sizeof g);
    snprintf(g.name, sizeof g.name, "X");
    for (int roots = 0; roots < 2; roots++)
        for (MethodWork w = {roots, 0, 0}; method_next(&w); n++) {
            TunedKey k;
            ck_assert(n < 200 && w.rows * w.rows * w.matrices <= 1 << 24 &&
                      (!roots || w.rows <= 128));
            method_label(w, names[n]);
            method_key(&g, w, false, &k);
            snprintf(keys[n], sizeof keys[n], "%s %d", k.stage, k.bucket);
            for (int i = 0; i < n; i++)
                ck_assert(strcmp(names[i], names[n]) && strcmp(keys[i], keys[n]));
        }
    ck_assert(n > 12);
}
END_TEST

/* A fake clock that advances only while libraries load: whatever an engine's first binding loads
 * takes a hundred seconds, and nothing else takes any time. */
static optc_engine *loading;
static double loading_clock(void *ctx)
{
    static int calls;
    optc_memory m;
    (void)ctx;
    OK(optc_memory_info(loading, &m));
    return (m.peak > 0 ? 100 : 0) + 1e-6 * calls++;
}

/* The time that libraries take to load does not count for the first search: it tries all candidates
 * within its share. */
START_TEST(loading_is_not_timed)
{
    SHARED();
    MethodTuner *u;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &loading));
    ck_assert(loading_clock(NULL) < 1);
    OK(method_tuner_open(loading, (MethodWork){false, 8, 1}, false, &u));
    ck_assert(method_tuner_choice(u));
    Space space = method_tuner_space(u);
    Meter m = method_tuner_meter(u);
    Search s = {.budget = 50, .trials = 2};
    m.now = loading_clock;
    ck_assert_msg(search_run(&space, &m, &s), "%s", optc_message());
    int tried = 0;
    for (int i = 0; i < s.n; i++)
        tried += s.trial[i].samples > 0;
    ck_assert_msg(tried == 2, "%d ways were tried", tried);
    search_free(&s);
    method_tuner_close(u);
    OK(optc_close(loading));
}
END_TEST

/* A package looks up its results like the library does, however many there are. Older files have
 * results for several numbers of matrices. */
START_TEST(as_in_packages)
{
    SHARED();
    optc_engine e = {.gpu = &(GpuEngine){.name = "X", .measured = method_measured},
                     .library = &(LibraryEngine){.untuned = 0}};
    KnownMethod packed[200];
    unsigned seed = 7;
    int n = 0, asked = 0, found = 0;
    for (int kind = 0; kind < 9; kind++)
        for (MethodWork w = {kind % 3 == 2, 0, 0}; method_next(&w);) {
            w.matrices <<= kind / 3 * 4;
            seed = seed * 1664525u + 1013904223u;
            EigenMethod method = (EigenMethod)(kind % 3 == 2 ? EIGEN_F32 + seed / 65536 % 2
                                                             : EIGEN_ROTATED + seed / 65536 % 4);
            Tuned t = measured(e.gpu, w, kind % 3 == 1, method);
            if (seed >> 30 == 0)                           /* a size that was not measured */
                continue;
            ck_assert(n < 200 && tuned_put(&e.library->tuned.user, &t));
            packed[n++] =
                (KnownMethod){kind % 3 == 2, kind % 3 == 1, (int)lround(log2((double)w.rows)),
                              t.key.bucket, (int)method};
        }
    for (int kind = 0; kind < 3; kind++)
        for (int power = METHOD_LEAST; power <= METHOD_MOST; power++)
            for (int bucket = 0; bucket < 20; bucket += 2, asked++) {
                EigenMethod method = method_measured(&e, kind == 2, kind == 1, power, bucket);
                found += method != EIGEN_BY_SIZE;
                ck_assert_int_eq(method,
                                 method_packed(packed, n, kind == 2, kind == 1, power, bucket));
            }
    ck_assert_msg(n > 20 && found > 60 && found < asked, "%d results, %d of %d found", n, found,
                  asked);
    tuned_free(&e.library->tuned.user);
}
END_TEST

/* Rules get the type that the search measured: f32 where f64 is slow. Where it is fast, divide and
 * conquer in f32 would be less exact than the model. */
START_TEST(type_of_divided)
{
    SHARED();
    One o;
    open_one(&o, vectors_rule, 1, 64, (How){.f64 = false});
    optc_tensor t = {.param = (void *)(uintptr_t)o.p, .grad = (void *)(uintptr_t)o.g, .rank = 3,
                     .shape = (int64_t[]){1, 64, 1}};
    Tuned divided = measured(o.e->gpu, (MethodWork){false, 64, 1}, false, EIGEN_DIVIDED);
    ck_assert(tuned_put(&o.e->library->tuned.user, &divided));
    for (int slow = 0; slow < 2; slow++) {
        OK(optc_unbind(o.b));
        o.e->gpu->f64_fast = !slow;
        OK(optc_bind(o.r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &o.b));
        ck_assert_msg(found(&o) == (slow ? BY_ROTATIONS | BY_F32 : 0), "%d: %d", slow, found(&o));
    }
    o.e->gpu->f64_fast = f64_fast(o.e->gpu->arch);
    close_one(&o);
}
END_TEST

/* `way=2` of a file from before divide and conquer was another method. Its key was made of this
 * text. Roots have kept theirs. */
START_TEST(old_results)
{
    optc_engine e = {.gpu = &(GpuEngine){.name = "X", .measured = method_measured},
                     .library = &(LibraryEngine){.untuned = 0}};
    for (int roots = 0; roots < 2; roots++) {
        char text[64], hex[DIGEST_HEX];
        MethodWork w = {roots, 64, 1};
        Tuned t = measured(e.gpu, w, false, EIGEN_F32);
        digest_hex(text,
                   (size_t)snprintf(text, sizeof text, "%s of 2^6 rows", roots ? "root" : "eigen"),
                   hex);
        memcpy(t.key.stage, hex, sizeof t.key.stage - 1);
        ck_assert(tuned_put(&e.library->tuned.user, &t));
        ck_assert_int_eq(method_measured(&e, roots, false, 6, 0),
                         roots ? EIGEN_F32 : EIGEN_BY_SIZE);
    }
    tuned_free(&e.library->tuned.user);
}
END_TEST

void add_methods(TCase *t)
{
    tcase_add_test(t, old_results);
    tcase_add_test(t, type_of_divided);
    tcase_add_test(t, as_in_packages);
    tcase_add_test(t, loading_is_not_timed);
    tcase_add_test(t, which_method);
    tcase_add_test(t, library_rows);
    tcase_add_test(t, sizes);
}
