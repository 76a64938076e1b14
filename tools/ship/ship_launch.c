/* Launches of a package: tuned results from a GPU of the architecture if there are any, otherwise
 * the model's. They are compiled into the code, so each architecture has one set. */
#include "tools/ship/ship.h"

#include <string.h>

/* The architecture of a GPU by words in its name, for tuned results. # is any number of digits; no
 * letter or digit may precede the words, and no digit may follow. The first match counts. */
static const struct { const char *words; int arch; } gpu_arch[] = {
    {"Quadro RTX", 75},            /* this row and the next two come before GeForces with such
                                    * numbers */
    {"Ada Generation", 89},
    {"RTX PRO", 120},
    {"V100", 70},
    {"GV100", 70},
    {"TITAN V", 70},
    {"Xavier", 72},
    {"T4", 75},
    {"T4G", 75},
    {"T10", 75},
    {"T40", 75},
    {"T400", 75},
    {"T500", 75},
    {"T550", 75},
    {"T600", 75},
    {"T1000", 75},
    {"T1200", 75},
    {"T2000", 75},
    {"TITAN RTX", 75},
    {"GTX 16#", 75},
    {"RTX 2050", 86},              /* belongs to the next family despite its name */
    {"RTX 20#", 75},
    {"A100", 80},
    {"A800", 80},
    {"A30", 80},
    {"PG506", 80},                 /* DRIVE A100 */
    {"CMP 170HX", 80},
    {"A2", 86},
    {"A10", 86},
    {"A16", 86},
    {"A40", 86},
    {"RTX A#", 86},
    {"RTX 30#", 86},
    {"MX570", 86},
    {"Orin", 87},
    {"L2", 89},
    {"L4", 89},
    {"L20", 89},
    {"L40", 89},
    {"RTX 40#", 89},
    {"H20", 90},
    {"H100", 90},
    {"H200", 90},
    {"H800", 90},
    {"GH200", 90},
    {"B100", 100},
    {"B200", 100},
    {"GB200", 100},
    {"B300", 103},
    {"GB300", 103},
    {"Thor", 110},
    {"RTX 50#", 120},
    {"GB10", 121},
};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool words_at(const char *s, const char *words)
{
    for (; *words; words++)
        if (*words == '#')
            s += strspn(s, "0123456789");
        else if (*s++ != *words)
            return false;
    return !is_digit(*s);
}

static int arch_of(const char *device)
{
    for (size_t i = 0; i < sizeof gpu_arch / sizeof *gpu_arch; i++)
        for (const char *c = device; *c; c++) {
            bool inside = c > device && (is_digit(c[-1]) || (c[-1] >= 'A' && c[-1] <= 'Z') ||
                                         (c[-1] >= 'a' && c[-1] <= 'z'));
            if (!inside && words_at(c, gpu_arch[i].words))
                return gpu_arch[i].arch;
        }
    return 0;
}

/* ---- measured launches ---- */
/* The key of a stage's tuned results: hash of its code, types, and the buckets that apply to large
 * tensors. */
typedef struct StageKey {
    const Stage *stage; char hash[33], types[TYPES_KEY]; int lo, hi;
} StageKey;

void ship_key_stages(Ship *s)
{
    s->key = NEWS(&s->pack.arena, StageKey *, s->nspec + 1);
    for (int r = 0; r < s->nspec; r++) {
        const Gen *g = s->pack.rule[r].gpu;
        s->key[r] = NEWS(&s->pack.arena, StageKey, g->plan->nfn + 1);
        for (int f = 0; f < g->plan->nfn; f++) {
            StageKey *k = &s->key[r][f];
            k->stage = plan_at(g->plan, f).stage;
            if (!k->stage)
                continue;
            if (!emit_cuda_stage_hash(g, f, k->hash))
                arena_out(&s->pack.arena);
            plan_types_key(g->plan, k->types);
            launch_range(g->plan, k->stage, 0, &k->lo, &k->hi);
            tuned_reach(&(TunedKey){.bucket = TUNED_LARGE}, &k->lo, &k->hi);
        }
    }
}

static bool is_of(const Ship *s, int rule, int fn, const Tuned *t)
{
    const StageKey *k = &s->key[rule][fn];
    return k->stage && !strcmp(t->key.stage, k->hash) && !strcmp(t->key.types, k->types) &&
           t->key.bucket >= k->lo && t->key.bucket <= k->hi &&
           launch_valid(s->pack.rule[rule].gpu->plan, k->stage, &t->launch);
}

static bool better(const Tuned *a, const Tuned *b)
{
    return a->key.bucket != b->key.bucket ? a->key.bucket > b->key.bucket
                                          : a->model_ms / a->ms > b->model_ms / b->ms;
}

/* The tuned result of a GPU of that architecture for large tensors. Of several: the largest size,
 * then the greatest gain over the model, then the first. The user's results come before the
 * built-in ones. NULL: none. */
static const Tuned *measured(const Ship *s, int rule, int fn, int arch)
{
    const TunedList *lists[] = {&s->tuned.user, &s->tuned.builtin};
    const Tuned *best = NULL;
    for (int k = 0; k < 2 && !best; k++)
        for (int i = 0; i < lists[k]->n; i++) {
            const Tuned *t = &lists[k]->v[i];
            if (is_of(s, rule, fn, t) && arch_of(t->key.device) == arch &&
                (!best || better(t, best)))
                best = t;
        }
    return best;
}

/* Sets the launches of an architecture. Its code and its table are generated from them. */
void ship_choose_launches(Ship *s, PackArch *a)
{
    a->launch = NEWS(&s->pack.arena, Launch *, s->nspec + 1);
    for (int r = 0; r < s->nspec; r++) {
        const Gen *g = s->pack.rule[r].gpu;
        a->launch[r] = NEWS(&s->pack.arena, Launch, g->plan->nfn + 1);
        for (int f = 0; f < g->plan->nfn; f++) {
            const Tuned *t = measured(s, r, f, a->arch);
            if (s->key[r][f].stage)
                a->launch[r][f] = t ? t->launch : launch_model(g->plan, s->key[r][f].stage, 0);
        }
    }
}

/* ---- methods for eigenvectors and roots ---- */
/* The tuned result for a size on a GPU of that architecture; of several, the greatest gain. */
static const Tuned *measured_method(const Ship *s, MethodWork w, bool f64, int arch)
{
    const TunedList *lists[] = {&s->tuned.user, &s->tuned.builtin};
    const GpuEngine any = {.sms = 0};
    const Tuned *best = NULL;
    TunedKey k;
    method_key(&any, w, f64, &k);
    for (int l = 0; l < 2 && !best; l++)
        for (int i = 0; i < lists[l]->n; i++) {
            const Tuned *t = &lists[l]->v[i];
            if (t->key.form == k.form && !strcmp(t->key.types, k.types) &&
                !strcmp(t->key.stage, k.stage) && t->key.bucket == k.bucket &&
                arch_of(t->key.device) == arch && (!best || better(t, best)))
                best = t;
        }
    return best;
}

static void add_methods(Ship *s, PackArch *a, bool roots, bool f64, int *cap)
{
    for (MethodWork w = {roots, 0, 0}; method_next(&w);) {
        const Tuned *t = measured_method(s, w, f64, a->arch);
        int power = 0;
        while (w.rows >> power > 1)
            power++;
        if (t)
            PUSH(&s->pack.arena, a->method, a->nmethod, *cap) =
                (PackMethod){roots, f64, power, t->key.bucket, t->launch.v[KNOB_METHOD]};
    }
}

/* Only machine code has measured methods: PTX is for later GPUs, of which there are no results. */
void ship_choose_methods(Ship *s, PackArch *a)
{
    bool eigen = false, wide = false, roots = false;
    int cap = 0;
    for (int r = 0; r < s->nspec && !a->ptx; r++) {
        const Program *p = program_make(&s->pack.arena, s->pack.rule[r].gpu->plan, NULL);
        eigen = eigen || method_for(p, false);
        wide = wide || method_f64(p);
        roots = roots || method_for(p, true);
    }
    if (eigen)
        add_methods(s, a, false, false, &cap);
    if (wide)
        add_methods(s, a, false, true, &cap);
    if (roots)
        add_methods(s, a, true, false, &cap);
}

typedef struct Names { const char **v; int n, cap; } Names;
static bool add_name(Ship *s, Names *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->v[i], name))
            return false;
    PUSH(&s->pack.arena, l->v, l->n, l->cap) = name;
    return true;
}

static bool say_arch(Ship *s, int arch)
{
    Names gpu = {0};
    int stages = 0, found = 0;
    for (int r = 0; r < s->nspec; r++)
        for (int f = 0; f < s->pack.rule[r].gpu->plan->nfn; f++) {
            const Tuned *t = measured(s, r, f, arch);
            stages += s->key[r][f].stage != NULL;
            found += t != NULL;
            if (t)
                add_name(s, &gpu, t->key.device);
        }
    if (found)
        printf("  sm_%d: %d of %d stages launched as measured on ", arch, found, stages);
    for (int i = 0; i < gpu.n; i++)
        printf("%s%s%s", i ? ", " : "", gpu.v[i], i + 1 < gpu.n ? "" : "\n");
    return found > 0;
}

static void say_methods(const PackArch *a)
{
    if (a->nmethod)
        printf("  sm_%d: tuned methods for %d size%s of eigenvectors and roots\n", a->arch,
               a->nmethod, a->nmethod == 1 ? "" : "s");
}

/* Prints, once, the name of a GPU whose results are not used because its architecture is unknown or
 * not shipped. */
static void say_left_out(Ship *s, const Tuned *t, Names *said)
{
    int arch = arch_of(t->key.device);
    bool of = false;
    for (int i = 0; i < s->pack.narch; i++)
        if (s->pack.arch[i].arch == arch)
            return;
    for (int r = 0; r < s->nspec && !of; r++)
        for (int f = 0; f < s->pack.rule[r].gpu->plan->nfn && !of; f++)
            of = is_of(s, r, f, t);
    if (!of || !add_name(s, said, t->key.device))
        return;
    printf("  left out: results of %s, ", t->key.device);
    if (arch)
        printf("which is sm_%d\n", arch);
    else
        printf("whose architecture is not known here\n");
}

void ship_say_measured(Ship *s)
{
    const TunedList *user = &s->tuned.user;
    Names said = {0};
    bool any = false, given = false;
    for (int i = 0; i < s->pack.narch; i++)
        any = (!s->pack.arch[i].ptx && say_arch(s, s->pack.arch[i].arch)) || any;
    for (int i = 0; i < s->pack.narch; i++)
        say_methods(&s->pack.arch[i]);
    for (int i = 0; i < user->n; i++)
        if (user->v[i].key.form != FORM_CPU && knob_text(user->v[i].key.form, KNOB_GRID)) {
            given = true;
            say_left_out(s, &user->v[i], &said);
        }
    if (given && !any)
        printf("  no tuned launches are used: all are the model's\n");
}
