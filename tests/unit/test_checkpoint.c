/* optc_save and optc_load: resumed runs, names and layout of the file, conversions, files that are
 * refused. test_checkpoint_files.c has failures of writing and reading, test_safetensors.c the
 * reader of headers. */
#include "tests/harness/checkpoint_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- resumed runs ---- */
static const struct { const char *spec, *types;
} rules[] = {{"adamw+clip(1)", NULL},
             {"adamw", "state=q8"},
             {"adamw", "param=bf16,state=bf16sr"},
             {"lion", "param=f16"},
             {"adamw", "param=bf16,master=low16"},
             {"adamw", "param=bf16,master=kahan,state=f8"},
             {"adamw", "param=f64"},
             {"adafactor", NULL},
             {"muon+skip", NULL},
             {"adamw+ema(0.9),lookahead(2,0.5)", NULL},
             {"shampoo", NULL},
             {"adamw", "param=bf16,master=low8,v=e5m2,m=e4m3"}};

/* A run that is saved, loaded into another binding with other threads, and continued, is the run
 * that went on. */
START_TEST(resumes)
{
    Run a, b;
    char warnings[200] = "x";
    run_open(&a, rules[_i].spec, rules[_i].types, 1);
    run_open(&b, rules[_i].spec, rules[_i].types, 2);
    run_steps(&a, 1, 3);
    optc_checkpoint c = run_saved(&a.b, 1, NULL);
    run_copy_params(&b, &a);
    c.warnings = warnings, c.warnings_size = sizeof warnings;
    OK(optc_load(&b.b, 1, &c));
    ck_assert_str_eq(warnings, "");
    ck_assert_msg(run_hash(&a) == run_hash(&b), "%s: other states after loading", rules[_i].spec);
    run_steps(&a, 4, 6);
    run_steps(&b, 4, 6);
    ck_assert_msg(run_hash(&a) == run_hash(&b), "%s: the resumed run differs", rules[_i].spec);
    int64_t t[2];
    OK(optc_get_t(b.b, 0, &t[0]));
    OK(optc_get_t(b.b, 1, &t[1]));
    ck_assert(t[0] == 6 && t[1] == 5);
    free(c.memory);
    run_close(&a);
    run_close(&b);
}
END_TEST

/* A seed is a hyperparameter of rules that draw numbers. NaN and infinity are saved as they are. */
START_TEST(seeds_and_nans)
{
    static const char text[] =
        "return optimizer { name = 'noisy', hyper = { lr = 0.1 }, state = { m = zeros }, step = "
        "function() m = m + normal() p = p - lr * m end }";
    Run a, b;
    optc_engine_options eo = {.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")};
    run_open_as(&a, &eo, &(optc_rule_options){.spec = "noisy", .text = text}, run_names);
    run_open_as(&b, &eo, &(optc_rule_options){.spec = "noisy", .text = text}, run_names);
    OK(optc_set_hyper(a.b, -1, "seed", 77));
    run_steps(&a, 1, 2);
    optc_state_view v;
    OK(optc_state(a.b, 0, "m", &v));
    ((uint32_t *)v.data)[5] = 0x7fc12345;
    ((float *)v.data)[6] = -INFINITY;
    optc_checkpoint c = run_saved(&a.b, 1, NULL);
    run_copy_params(&b, &a);
    OK(optc_load(&b.b, 1, &c));
    OK(optc_state(b.b, 0, "m", &v));
    ck_assert(((uint32_t *)v.data)[5] == 0x7fc12345 && ((float *)v.data)[6] == -INFINITY);
    double seed;
    OK(optc_get_hyper(b.b, 1, "seed", &seed));
    ck_assert(seed == 77);
    run_steps(&a, 3, 4);
    run_steps(&b, 3, 4);
    ck_assert_mem_eq(a.p[0], b.p[0], 16);
    free(c.memory);
    run_close(&a);
    run_close(&b);
}
END_TEST

/* ---- the file ---- */
static void open_file(const optc_checkpoint *c, SafeFile *f)
{
    CheckpointSource s;
    OK(source_open(&s, "test", c));
    OK(source_header(&s, f));
    source_close(&s);
}

static void has(const SafeFile *f, const char *name, const char *dtype, int rank, int64_t first)
{
    const SafeTensor *t = safe_find(f, name);
    ck_assert_msg(t != NULL, "the file lacks %s", name);
    ck_assert_str_eq(t->type->name, dtype);
    ck_assert_msg(t->rank == rank && (!rank || f->dim[t->dim] == first), "%s has another shape",
                  name);
    ck_assert_msg((f->data + t->begin) % t->type->bytes == 0, "%s is not aligned", name);
}

START_TEST(names_and_types)
{
    Run a;
    SafeFile f;
    run_open(&a, "adamw+ema(0.9)", "param=bf16,master=low16,state=q8,ema.avg=bf16", 1);
    run_steps(&a, 1, 3);
    optc_checkpoint c = run_saved(&a.b, 1, (const char *[]){"a."});
    open_file(&c, &f);
    has(&f, "a.layers.0/weight/m", "U8", 2, 80);
    has(&f, "a.layers.0/weight/m/scale", "F32", 1, 38);
    has(&f, "a.layers.0/weight/low", "I16", 2, 80);
    has(&f, "a.layers.0/weight/ema.avg", "BF16", 2, 80);
    has(&f, "a.b\"\\ä\n/m", "F32", 1, 7);                          /* too small for codes */
    has(&f, "a.#2/v", "F32", 0, 0);
    has(&f, "a.conv/v", "F32", 3, 4);
    has(&f, "a.optc.t", "I64", 1, 5);
    has(&f, "a.optc.hyper", "F64", 2, 2);
    has(&f, "optc.hash", "U8", 1, 8);
    ck_assert_str_eq(safe_meta(&f, "optc"), "1");
    ck_assert_str_eq(safe_meta(&f, "a.optc.rule"), "adamw");
    ck_assert_str_eq(safe_meta(&f, "a.optc.with"), "ema(0.9)");
    ck_assert_str_eq(safe_meta(&f, "a.optc.t"), "3");
    const char *types = safe_meta(&f, "a.optc.types");
    ck_assert_msg(types && strstr(types, "m=q8,") && strstr(types, "v=q8u"), "%s", types);
    ck_assert_msg(!safe_find(&f, "a.layers.0/weight/copy"), "copies are not saved");
    safe_free(&f);
    free(c.memory);
    run_close(&a);
}
END_TEST

/* With parameters: a run with other weights continues as the saved one. A file with parameters can
 * be loaded without them. */
START_TEST(parameters_too)
{
    Run a, b;
    SafeFile f;
    char data[1 << 17];
    optc_checkpoint c = {.memory = data, .size = sizeof data, .params = 1};
    run_open(&a, "adamw", _i ? "param=bf16,master=low16" : NULL, 1);
    run_open(&b, "adamw", _i ? "param=bf16,master=low16" : NULL, 1);
    run_steps(&a, 1, 3);
    OK(optc_save_bytes(&a.b, 1, &c, &c.size));
    ck_assert_int_lt(c.size, sizeof data);
    OK(optc_save(&a.b, 1, &c));
    open_file(&c, &f);
    has(&f, "layers.0/weight/param", _i ? "BF16" : "F32", 2, 80);
    safe_free(&f);
    run_steps(&b, 7, 9);
    ck_assert_mem_ne(a.p[0], b.p[0], 16);
    OK(optc_load(&b.b, 1, &c));
    ck_assert_mem_eq(a.p[0], b.p[0], 16);
    run_steps(&a, 4, 6);
    run_steps(&b, 4, 6);
    ck_assert_mem_eq(a.p[0], b.p[0], 16);
    c.params = 0;
    OK(optc_load(&b.b, 1, &c));
    ck_assert_mem_eq(a.p[0], b.p[0], 16);
    run_close(&a);
    run_close(&b);
}
END_TEST

/* Tensors without a name of their own are called by number; names that would clash are refused. */
START_TEST(names_that_clash)
{
    static const char *const same[] = {"w", "w", "\xff", ""}, *const clash[] = {"#1", "x", NULL,
                                                                                "optc.group0"};
    Run a;
    SafeFile f;
    optc_engine_options eo = {.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")};
    run_open_as(&a, &eo, &(optc_rule_options){.spec = "adamw"}, same);
    optc_checkpoint c = run_saved(&a.b, 1, NULL);
    open_file(&c, &f);
    has(&f, "#0/m", "F32", 2, 80);
    has(&f, "#1/m", "F32", 1, 7);
    has(&f, "#2/m", "F32", 0, 0);
    has(&f, "#3/m", "F32", 3, 4);
    safe_free(&f);
    free(c.memory);
    optc_binding *two[2] = {a.b, a.b};
    c = (optc_checkpoint){.prefix = (const char *[]){"x", "x"}};
    FAILS(optc_save_bytes(two, 2, &c, &c.size), OPTC_ERROR_ARGUMENT,
          "bindings 0 and 1 have the same prefix 'x'");
    c.prefix = (const char *[]){"", "#0/m"};
    OK(optc_save_bytes(two, 2, &c, &c.size));
    c.prefix = (const char *[]){"\xc0", "y"};
    FAILS(optc_save_bytes(two, 2, &c, &c.size), OPTC_ERROR_ARGUMENT,
          "the prefix of binding 0 is not UTF-8");
    run_close(&a);
    run_open_as(&a, &eo, &(optc_rule_options){.spec = "adamw"}, clash);
    c = run_saved(&a.b, 1, NULL);
    free(c.memory);
    run_close(&a);
}
END_TEST

/* Two bindings in one file: both are loaded together, or one of them alone by its prefix. */
START_TEST(several_bindings)
{
    static const char *const prefix[] = {"wide.", "narrow."};
    Run a, b, x, y;
    run_open(&a, "adamw", NULL, 1);
    run_open(&b, "lion", "param=bf16", 1);
    run_open(&x, "adamw", NULL, 1);
    run_open(&y, "lion", "param=bf16", 1);
    run_steps(&a, 1, 3);
    run_steps(&b, 1, 5);
    optc_binding *from[] = {a.b, b.b}, *to[] = {x.b, y.b};
    run_copy_params(&x, &a);
    run_copy_params(&y, &b);
    for (int own = 0; own < 2; own++) {
        optc_checkpoint c = run_saved(from, 2, own ? prefix : NULL);
        OK(optc_load(to, 2, &c));
        ck_assert(run_hash(&a) == run_hash(&x) && run_hash(&b) == run_hash(&y));
        OK(optc_set_t(y.b, -1, 0));
        c.prefix = (const char *[]){own ? "narrow." : "1."};
        OK(optc_load(&y.b, 1, &c));
        ck_assert(run_hash(&b) == run_hash(&y));
        c.prefix = (const char *[]){"none."};
        FAILS(optc_load(&y.b, 1, &c), OPTC_ERROR_ARGUMENT,
              "it has no binding with the prefix 'none.'");
        c.prefix = (const char *[]){own ? "wide." : "0."};
        FAILS(optc_load(&y.b, 1, &c), OPTC_ERROR_ARGUMENT,
              "its rule is 'adamw', and the binding's 'lion'");
        free(c.memory);
    }
    run_close(&a), run_close(&b), run_close(&x), run_close(&y);
}
END_TEST

/* ---- other types ---- */
static const struct { const char *from, *to, *says; double off; } conversions[] = {
    {NULL, "state=bf16", "state 'm' was converted from f32 to bf16, in 4 tensors", 1.0 / 256},
    {"state=bf16", NULL, "state 'm' was converted from bf16 to f32, in 4 tensors", 0},
    {NULL, "state=q8", "state 'm' was converted from f32 to q8, in 1 tensor: ", 0.2},
    {"state=q8", NULL, "state 'm' was converted from q8 to f32, in 1 tensor: ", 0},
    {"state=q8", "state=f8", "state 'm' was converted from q8 to f8, in 1 tensor: ", 0.2},
    /* of a rule with a seed into one without */
    {"state=bf16sr", "state=bf16", "", 0},
    {"state=bf16", "state=bf16sr", "", 0},
    {"state=bf16", "state=q8", "state 'v' was converted from bf16 to q8u, in 1 tensor: ", 0.2}};

START_TEST(converts)
{
    Run a, b;
    char warnings[2000] = "";
    run_open(&a, "adamw", conversions[_i].from, 1);
    run_open(&b, "adamw", conversions[_i].to, 1);
    run_steps(&a, 1, 3);
    optc_checkpoint c = run_saved(&a.b, 1, NULL);
    c.warnings = warnings, c.warnings_size = sizeof warnings;
    OK(optc_load(&b.b, 1, &c));
    ck_assert_msg(strstr(warnings, conversions[_i].says) && (*conversions[_i].says || !*warnings),
                  "warnings: %s", warnings);
    double x[4800], y[4800], most = 0;
    OK(optc_state_read(a.b, 0, "m", x, 4800));
    OK(optc_state_read(b.b, 0, "m", y, 4800));
    for (int i = 0; i < 4800; i++)
        most = fmax(most, fabs(x[i]));
    for (int i = 0; i < 4800; i++)
        ck_assert_msg(fabs(x[i] - y[i]) <= conversions[_i].off * most, "value %d: %g became %g", i,
                      x[i], y[i]);
    free(c.memory);
    run_close(&a);
    run_close(&b);
}
END_TEST

/* Values that the new type cannot hold, and bits of parameters, are refused before anything is
 * written. */
START_TEST(refuses_conversions)
{
    Run a, b;
    run_open(&a, "adamw", NULL, 1);
    run_open(&b, "adamw", "state=q8", 1);
    run_steps(&a, 1, 2);
    optc_state_view v;
    OK(optc_state(a.b, 0, "v", &v));
    ((float *)v.data)[4799] = -1e-9f;
    optc_checkpoint c = run_saved(&a.b, 1, NULL);
    uint64_t before = run_hash(&b);
    FAILS(optc_load(&b.b, 1, &c), OPTC_ERROR_ARGUMENT,
          "value 4799 is -1e-09, and the binding stores values that are "
          "never negative of 'layers.0/weight/v'");
    ck_assert(run_hash(&b) == before);
    free(c.memory);
    run_close(&a);
    run_close(&b);
    run_open(&a, "adamw", "param=bf16,master=low16", 1);
    run_open(&b, "adamw", "param=bf16,master=low8", 1);
    c = run_saved(&a.b, 1, NULL);
    FAILS(optc_load(&b.b, 1, &c), OPTC_ERROR_ARGUMENT,
          "bits of a parameter (master=) cannot be converted");
    free(c.memory);
    run_close(&a);
    run_close(&b);
}
END_TEST

/* ---- files that do not fit ---- */
START_TEST(refuses_others)
{
    static const char *const other_names[] = {"layers.0/weight", "b", NULL, "conv"};
    Run a, b;
    optc_engine_options eo = {.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")};
    const struct { optc_rule_options o; const char *const *names; const char *says;
    } c[] = {
        {{.spec = "lion"}, run_names, "its rule is 'adamw', and the binding's 'lion'"},
        {{.spec = "adamw+clip(1)"}, run_names, "its wrappers are '', and the binding's 'clip(1)'"},
        {{.spec = "adamw", .options = "amsgrad=true"}, run_names, "its options are '"},
        {{.spec = "adamw", .types = "param=bf16,master=f32"},
         run_names,
         "it lacks 'layers.0/weight/master'"},
        {{.spec = "adamw"}, other_names, "it lacks 'b/m'"}};
    run_open(&a, "adamw", NULL, 1);
    run_steps(&a, 1, 2);
    optc_checkpoint file = run_saved(&a.b, 1, NULL);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        run_open_as(&b, &eo, &c[i].o, c[i].names);
        uint64_t before = run_hash(&b);
        FAILS(optc_load(&b.b, 1, &file), OPTC_ERROR_ARGUMENT, c[i].says);
        ck_assert(run_hash(&b) == before);
        /* the other way round there is one too many */
        if (strstr(c[i].says, "master")) {
            optc_checkpoint back = run_saved(&b.b, 1, NULL);
            FAILS(optc_load(&a.b, 1, &back), OPTC_ERROR_ARGUMENT, "the binding has no '#2/master'");
            free(back.memory);
        }
        run_close(&b);
    }
    free(file.memory);
    run_close(&a);
}
END_TEST

START_TEST(refuses_other_shapes)
{
    static float p[24], g[24];
    const int64_t shape[3][2] = {{4, 6}, {6, 4}, {24, 1}};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b[3], *two;
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = ""}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    optc_tensor t[2] = {{.name = "w", .param = p, .grad = g, .rank = 2},
                        {.name = "u", .param = p + 20, .rank = 0}};
    for (int i = 0; i < 3; i++) {
        t[0].shape = shape[i];
        t[0].rank = i < 2 ? 2 : 1;
        OK(optc_bind(r, &(optc_group){.tensors = t, .ntensors = 1}, 1, &b[i]));
    }
    optc_checkpoint c = run_saved(b, 1, NULL);
    FAILS(optc_load(&b[1], 1, &c), OPTC_ERROR_ARGUMENT,
          "shape [4, 6] in the file, [6, 4] here, of 'w/m'");
    OK(optc_load(&b[0], 1, &c));
    t[0].shape = (int64_t[]){4, 5};
    t[0].rank = 2;
    OK(optc_bind(r, &(optc_group){.tensors = t, .ntensors = 2}, 1, &two));
    FAILS(optc_load(&two, 1, &c), OPTC_ERROR_ARGUMENT, "it has 1 tensors, and the binding 2");
    OK(optc_unbind(two));
    optc_group split[2] = {{.tensors = t, .ntensors = 1}, {.ntensors = 0}};
    t[0].shape = shape[0];
    OK(optc_bind(r, split, 2, &two));
    FAILS(optc_load(&two, 1, &c), OPTC_ERROR_ARGUMENT, "it has 1 groups, and the binding 2");
    OK(optc_unbind(two));
    free(c.memory);
    for (int i = 0; i < 3; i++)
        OK(optc_unbind(b[i]));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* The hash of a small file that a test changed. */
static void hash_again(optc_checkpoint *c)
{
    uint64_t h = checkpoint_hash(1, c->memory, (size_t)c->size - sizeof h);
    memcpy((char *)c->memory + c->size - sizeof h, &h, sizeof h);
}

/* Replaces a text of the header by another one of the same length. */
static void edit_file(optc_checkpoint *c, const char *was, const char *now)
{
    char *at = memmem(c->memory, (size_t)c->size, was, strlen(was));
    ck_assert_msg(at != NULL, "the file has no %s", was);
    memcpy(at, now, strlen(now));
    hash_again(c);
}

/* A state of a tensor that is not row-major is saved in memory order: strides must be the same. A
 * file of an older version, without them, loads with a warning. */
START_TEST(refuses_other_strides)
{
    static float p[24], g[24];
    const int64_t shape[3] = {2, 3, 4}, strides[3][3] = {{12, 1, 3}, {1, 8, 2}, {12, 1, 3}};
    char warnings[300];
    optc_engine *e;
    optc_rule *r;
    optc_binding *b[3];
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = ""}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    for (int i = 0; i < 3; i++) {
        optc_tensor t = {.name = "w",
                         .param = p,
                         .grad = g,
                         .rank = 3,
                         .shape = shape,
                         .param_strides = strides[i],
                         .grad_strides = strides[i]};
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b[i]));
    }
    optc_checkpoint c = run_saved(b, 1, NULL);
    c.warnings = warnings, c.warnings_size = sizeof warnings;
    FAILS(optc_load(&b[1], 1, &c), OPTC_ERROR_ARGUMENT, "its tensors have other strides");
    OK(optc_load(&b[2], 1, &c));
    ck_assert_str_eq(warnings, "");
    edit_file(&c, "optc.strides", "optc.stridex");
    OK(optc_load(&b[2], 1, &c));
    ck_assert_msg(strstr(warnings, "does not record strides"), "%s", warnings);
    free(c.memory);
    for (int i = 0; i < 3; i++)
        OK(optc_unbind(b[i]));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Step counts and hyperparameters go by number: tensors with the same shapes must have the saved
 * order and groups. A file of an older version loads with a warning, unless all tensors have the
 * same count and group. */
START_TEST(refuses_another_order)
{
    static float p[8], g[8];
    static const char *const says = "its tensors have another order or other groups";
    const int64_t shape[1] = {4};
    const struct { const char *names; int first; bool fits;
    } row[] = {{"ab", 2, true}, {"ba", 2, false}, {"ab", 1, false},
               {"ab", 1, true}, {"ba", 1, false}, {"ab", 0, false}};
    char warnings[300];
    optc_engine *e;
    optc_rule *r;
    optc_binding *b[6];
    optc_checkpoint c;
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = ""}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    for (int i = 0; i < 6; i++) {
        char name[2][2] = {{row[i].names[0]}, {row[i].names[1]}};
        optc_tensor t[2] = {
            {.name = name[0], .param = p, .grad = g, .rank = 1, .shape = shape},
            {.name = name[1], .param = p + 4, .grad = g + 4, .rank = 1, .shape = shape}};
        optc_group group[2] = {{.tensors = t, .ntensors = row[i].first},
                               {.tensors = t + row[i].first, .ntensors = 2 - row[i].first}};
        OK(optc_bind(r, group, 2, &b[i]));
    }
    for (int from = 0; from < 6; from += 3) {              /* row `from` is saved */
        OK(optc_step(b[from]));
        OK(optc_set_grad(b[from], 1, NULL, 0));
        OK(optc_step(b[from]));
        c = run_saved(&b[from], 1, NULL);
        c.warnings = warnings, c.warnings_size = sizeof warnings;
        for (int i = from; i < from + 3; i++)
            if (row[i].fits)
                OK(optc_load(&b[i], 1, &c));
            else
                FAILS(optc_load(&b[i], 1, &c), OPTC_ERROR_ARGUMENT, says);
        ck_assert_str_eq(warnings, "");
        edit_file(&c, "optc.order", "optc.ordex");
        OK(optc_load(&b[from], 1, &c));
        ck_assert_msg(strstr(warnings, "does not record the order"), "%s", warnings);
        free(c.memory);
    }
    for (int i = 0; i < 6; i++)
        OK(optc_unbind(b[i]));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Puts a tensor without values into the header. */
static void add_empty(optc_checkpoint *c, const char *name)
{
    enum { ROOM = 96 };
    char text[ROOM + 1];
    uint64_t header;
    snprintf(text, sizeof text, "\"%s\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},",
             name);
    memset(text + strlen(text), ' ', ROOM - strlen(text));
    c->memory = realloc(c->memory, (size_t)c->size + ROOM);
    memcpy(&header, c->memory, sizeof header);
    char *at = (char *)c->memory + sizeof header + 1;      /* after the first brace */
    memmove(at + ROOM, at, (size_t)c->size - sizeof header - 1);
    memcpy(at, text, ROOM);
    header += ROOM;
    memcpy(c->memory, &header, sizeof header);
    c->size += ROOM;
    hash_again(c);
}

/* A tensor that no binding of the file has is refused by the binding with its prefix. Another
 * binding's is not, also if both prefixes fit its name. */
START_TEST(refuses_extra_tensors)
{
    static const char *const prefix[] = {"", "b."};
    Run a, b;
    run_open(&a, "adamw", NULL, 1);
    run_open(&b, "adamw", NULL, 1);
    optc_binding *both[] = {a.b, b.b};
    optc_checkpoint c = run_saved(both, 2, prefix);
    for (int i = 0; i < 2; i++) {
        c.prefix = &prefix[i];
        OK(optc_load(&both[i], 1, &c));
    }
    c.prefix = prefix;
    add_empty(&c, "conv/zzz");
    FAILS(optc_load(both, 2, &c), OPTC_ERROR_ARGUMENT, "the binding has no 'conv/zzz'");
    FAILS(optc_load(both, 1, &c), OPTC_ERROR_ARGUMENT, "the binding has no 'conv/zzz'");
    c.prefix = &prefix[1];
    OK(optc_load(&both[1], 1, &c));
    free(c.memory);
    run_close(&a);
    run_close(&b);
}
END_TEST

/* Every truncation and every damaged byte is refused, with no change. Bytes of names and numbers in
 * the header make other files, which the hash refuses at the latest. */
START_TEST(refuses_damage)
{
    Run a, b;
    run_open(&a, "adamw", "state=q8", 1);
    run_open(&b, "adamw", "state=q8", 1);
    run_steps(&a, 1, 2);
    optc_checkpoint c = run_saved(&a.b, 1, NULL);
    unsigned char *bytes = c.memory;
    int64_t size = c.size;
    uint64_t before = run_hash(&b);
    for (int64_t i = 0; i < size; i += i < 40 || i > size - 40 ? 1 : 97) {
        c.size = i;
        ck_assert_msg(optc_load(&b.b, 1, &c) == OPTC_ERROR_ARGUMENT, "%lld of %lld bytes",
                      (long long)i, (long long)size);
        c.size = size;
        bytes[i] ^= 1u << i % 8;
        ck_assert_msg(optc_load(&b.b, 1, &c) == OPTC_ERROR_ARGUMENT, "byte %lld", (long long)i);
        bytes[i] ^= 1u << i % 8;
    }
    ck_assert(run_hash(&b) == before);
    OK(optc_load(&b.b, 1, &c));
    ck_assert(run_hash(&b) != before);
    free(bytes);
    run_close(&a);
    run_close(&b);
}
END_TEST

Suite *checkpoint_suite(void)
{
    Suite *s = suite_create("checkpoint");
    TCase *t = tcase_create("checkpoint");
    tcase_add_loop_test(t, resumes, 0, sizeof rules / sizeof *rules);
    tcase_add_test(t, seeds_and_nans);
    tcase_add_test(t, names_and_types);
    tcase_add_loop_test(t, parameters_too, 0, 2);
    tcase_add_test(t, names_that_clash);
    tcase_add_test(t, several_bindings);
    tcase_add_loop_test(t, converts, 0, sizeof conversions / sizeof *conversions);
    tcase_add_test(t, refuses_conversions);
    tcase_add_test(t, refuses_others);
    tcase_add_test(t, refuses_other_shapes);
    tcase_add_test(t, refuses_other_strides);
    tcase_add_test(t, refuses_another_order);
    tcase_add_test(t, refuses_extra_tensors);
    tcase_add_test(t, refuses_damage);
    suite_add_tcase(s, t);
    return s;
}
