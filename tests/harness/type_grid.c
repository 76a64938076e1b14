#include "tests/harness/type_grid.h"
#include "tests/harness/help.h"
#include "gen/gen.h"
#include "optc.h"
#include "runtime/library/rule/spec_find.h"

#include <stdlib.h>
#include <string.h>

const char *const grid_types[NGRID] = {
    "param=bf16",
    "param=bf16,state=bf16",
    "param=f16,state=f16",
    "param=f64,grad=f32,state=q8",
    "state=q8",
    "param=bf16,state=q8",
    "param=bf16,state=f8",
    "param=bf16sr,grad=bf16,state=bf16sr",
    "param=f16sr,grad=f16,state=f16,copy=e5m2",
    "param=bf16,state=q8,master=low16",
    "param=bf16,master=f32,copy=e4m3",
    "param=bf16,state=f8,master=kahan",
    "param=bf16,master=low8,lost=count",
    "param=f32,grad=e5m2,state=e4m3",
};

const RefusedTypes grid_refused[] = {
    {"param=q8", "param=q8: block codes are for states only; use bf16"},
    {"grad=q8u", "grad=q8u: block codes are for states only; use bf16"},
    {"grad=bf16sr", "grad=bf16sr: gradients are only read, so stochastic rounding does not apply"},
    {"state=i16",
     "i16 and i8 hold only what bf16 parameters round away: use master=low16 or master=low8"},
    {"param=f32,master=f32", "master=f32: parameters in f32 round nothing away"},
    {"param=f64,master=low16", "master=low16: parameters in f64 round nothing away"},
    {"param=f16,master=low16",
     "master=low16: the remainder belongs to parameters in bf16, not in f16"},
    {"param=f16,master=low8",
     "master=low8: the remainder belongs to parameters in bf16, not in f16"},
    {"param=bf16sr,grad=bf16,master=kahan",
     "master=kahan: parameters in bf16sr cannot have it; choose param=bf16"},
    {"copy=q8", "copy=q8: a copy of the parameters needs a type that rounds each number by itself, "
                "to nearest"},
    {"copy=bf16sr", "copy=bf16sr: a copy of the parameters needs a type that rounds each number by "
                    "itself, to nearest"},
    {"param=bf16sr,grad=bf16,lost=count",
     "lost=count: parameters in bf16sr round up or down at random"},
    {NULL, NULL},
};

const char *grid_rule(int i)
{
    for (int k = 0; k < optc_library_size(); k++)
        if (!strchr(optc_library_name(k), '/') && i-- == 0)
            return optc_library_name(k);
    return NULL;
}

int grid_rules(void)
{
    int n = 0;
    while (grid_rule(n))
        n++;
    return n;
}

bool grid_runs(int i, int share)
{
    /* the first set follows from the rule's name: more rules in the library do not change the sets
     * of the others */
    const char *rule = grid_rule(i / NGRID);
    return sample(rule, NGRID) < 0 || (i % NGRID + sample(rule, NGRID)) % NGRID < share;
}

bool grid_products(const char *rule)
{
    Gen g = {0};
    Source s;
    GenOptions o = {.find = find_wrapper, .types = {.p = T_F32, .g = T_F32, .state = T_F32}};
    bool any = find_spec(NULL, rule, &g.arena, &s, &g.diag) && gen_compile(&g, s, &o) &&
               plan_calls(g.plan);
    gen_free(&g);
    return any;
}
