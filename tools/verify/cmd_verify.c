/* optc verify: proves that the emitted GPU code of a rule stores the bits that its plan says. */
#include "tools/verify/verify.h"

#include <stdlib.h>
#include <string.h>

typedef struct Totals {
    int proved, wrong, skipped, calls; int64_t values; MutantCount mutants;
} Totals;
typedef struct Asked { const char *only; bool quiet; int mutants, arch; } Asked;

/* Instructions that no case executed. */
static int unreached(const Verify *v)
{
    int n = 0;
    for (int i = 0; i < v->kernel.ninst; i++)
        n += !v->kernel.ran[i];
    return n;
}

static void report(Verify *v, const char *rule, VerifyResult r, const Asked *o, Totals *t,
                   double seconds)
{
    const char *title = v->kernel_name;
    t->proved += r == VERIFY_PROVED;
    t->wrong += r == VERIFY_WRONG;
    t->skipped += r == VERIFY_SKIPPED;
    if (r == VERIFY_WRONG)
        cli_error("verify: %s sm_%d, %s: %s", rule, v->arch, title, v->why);
    else if (r == VERIFY_SKIPPED)
        cli_print("%s sm_%d %s: not checked: %s\n", rule, v->arch, title, v->why);
    else if (!o->quiet)
        cli_print("%s sm_%d %s: proved, %d of %d instructions executed, %.1f s\n", rule, v->arch,
                  title, v->kernel.ninst - unreached(v), v->kernel.ninst, seconds);
}

static bool verify_all(Verify *v, const char *rule, const Asked *o, Totals *t)
{
    const Plan *p = v->plan;
    jmp_buf out;
    v->arena.out = v->scratch.out = &out;
    if (setjmp(out))
        return cli_error("verify: %s: out of memory", rule), false;
    for (int fn = 0; fn < p->nfn; fn++) {
        if (!plan_at(p, fn).stage)
            continue;
        double from = cli_cpu_seconds();
        VerifyResult r = verify_compile(v, fn);
        if (o->only && !strstr(v->kernel_name, o->only))
            continue;
        r = r == VERIFY_PROVED ? verify_stage(v) : r;
        report(v, rule, r, o, t, cli_cpu_seconds() - from);
        if (r == VERIFY_PROVED && o->mutants)
            verify_mutants(v, o->mutants, &t->mutants);
    }
    return true;
}

static int verify_spec(const Command *self, const char *arg, const CompileOpts *c, const Asked *o,
                       const Nvrtc *n, Totals *t)
{
    Spec s;
    Verify v;
    (void)self;
    if (!spec_open(&s, arg, c, false, NULL)) {
        int rc = spec_fail(&s);
        spec_close(&s);
        return rc;
    }
    int before = t->wrong;
    verify_begin(&v, &s.gen, n, o->arch);
    bool ok = verify_all(&v, s.gen.rule->name, o, t);
    t->values += v.values;
    verify_end(&v);
    spec_close(&s);
    return ok && t->wrong == before ? CLI_OK : CLI_FAILED;
}

int cmd_verify(const Command *self, int argc, char **argv)
{
    const char *arch = "sm_90", *why;
    CompileOpts c = COMPILE_OPTS_INIT;
    Asked o = {.only = NULL};
    Totals t = {0};
    const Opt opts[] = {
        {"arch", 'a', OPT_TEXT, &arch, "ARCH", "the architecture: sm_90 (default), sm_80, …"},
        {"stage", 0, OPT_TEXT, &o.only, "NAME", "only kernels whose name contains this"},
        {"quiet", 'q', OPT_FLAG, &o.quiet, NULL, "do not name stages that are proved"},
        {"mutants", 0, OPT_COUNT, &o.mutants, "N",
         "changes the PTX of each stage in N places, one at a time: the check must refuse it"},
        COMPILE_OPTS(c),
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (n < 1)
        return cli_one_spec(self, n);
    const Nvrtc *nvrtc = nvrtc_get(&why);
    if (!nvrtc)
        return cli_fail("verify: %s", why);
    Archs want = {{0}, 0};
    if ((rc = cli_archs(self, arch, nvrtc, &want)) != CLI_GO)
        return rc;
    if (want.n != 1)
        return cli_misuse(self, "--arch takes one architecture");
    o.arch = want.v[0];
    c.target = &target_cuda;
    rc = CLI_OK;
    for (int i = 0; i < n; i++)
        rc = verify_spec(self, argv[i], &c, &o, nvrtc, &t) == CLI_OK ? rc : CLI_FAILED;
    cli_print("%d stages proved (%lld values), %d differ, %d not checked\n", t.proved,
              (long long)t.values, t.wrong, t.skipped);
    if (o.mutants)
        cli_print("%d mutants: %d refused, %d equal in all cases\n", t.mutants.made,
                  t.mutants.refused, t.mutants.equal);
    return rc;
}
