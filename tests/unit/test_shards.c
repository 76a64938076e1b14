/* Sharded bindings: the results do not depend on the number of ranks or on the cuts. Every rule of
 * the library and compositions run on ranks that are threads, and are compared bit for bit with a
 * plain binding.
 *
 * `make test` runs each rule on a few worlds and cuts, which rotate so that all pairs occur.
 * OPTC_SHARDS=all runs every rule on all of them (make test-shards). */
#include "tests/harness/rank_threads.h"
#include "tests/harness/shard_world.h"
#include "tests/harness/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct RuleCase {
    const char *spec, *with, *options, *types, *text;
} RuleCase;

/* Beside the library's rules. Those with wrappers, options or types that the library does not
 * contain are compiled. */
static const RuleCase more[] = {
    {.spec = "adamw", .with = "clip(1)"},
    {.spec = "lion", .with = "clip(1)"},
    {.spec = "sgd", .options = "momentum_buffer=false"},
    {.spec = "adafactor", .options = "torch=true"},
    {.spec = "adamw", .with = "clip(1),ema(0.9),skip"},
    {.spec = "lamb", .with = "cautious,lookahead(2,0.5)"},
    {.spec = "adamw", .with = "sam(0.05)"},
    {.spec = "sgd", .with = "centralize,clip_norm(1)"},
    {.spec = "adamw", .with = "galore(3,2,0.25)"},
    {.spec = "sgd", .with = "fira(3,2,1)"},
    {.spec = "muon", .with = "clip(1),ema(0.9)"},
    {.spec = "shampoo", .options = "interval=2,side=40"},
    {.spec = "soap", .options = "interval=2,stagger=true,limit=100,precondition_1d=true"},
    {.spec = "dion", .options = "directions=8"},
    {.spec = "adamw", .with = "clip(1)", .types = "param=bf16,grad=f32,master=low16"},
    {.spec = "adamw", .with = "clip(1)", .types = "param=bf16,grad=f32,master=f32,edits=find"},
    {.spec = "muon", .types = "param=bf16,grad=f32,master=f32,edits=find"},
    {.spec = "lion", .types = "param=bf16sr"},
    {.spec = "adafactor", .types = "param=bf16,state=f32"},
    {.spec = "muon", .types = "param=bf16"},
    /* rings in elementwise passes, and states that start as draws */
    {.spec = "adashift", .options = "keep_num=3,reduce=none"},
    {.spec = "adamw", .with = "grokfast_ma(3,0.5)"},
    {.text = "return optimizer { name = 'drawn', hyper = { lr = 0.01 }, view = 'last',\n"
             "  state = { q = normal(), u = normal 'tensor', s = normal 'slice' },\n"
             "  step = function() q = 0.5 * q + g p = p - lr * (q + u + s) end }"},
    /* draws of every domain; sizes */
    {.text = "return optimizer { name = 'draws', hyper = { lr = 0.01 }, view = 'last', state = { m "
             "= zeros },\n"
             "  step = function() m = 0.5 * m + g + random() p = p - lr * m + lr * normal 'row' + "
             "lr * random 'slice' "
             "+ lr * normal 'col' + lr * random 'tensor' + lr / (numel + nrows * ncols + 100 * "
             "nkernel) end }"},
    /* reductions of every kind; the last uses the result of an earlier one */
    {.text = "return optimizer { name = 'folds', hyper = { lr = 0.1 }, state = { r = zeros 'row', "
             "c = zeros 'col' },\n"
             "  step = function() r = 0.5 * r + rowsum(g) c = 0.5 * c + colsum(abs(g))\n"
             "    p = p - lr * (g / (1 + abs(sum(g))) + max(g) - min(g) + r / (1 + sum(abs(r))))\n"
             "      - lr * (colmax(g) / (1 + c) + rowmin(g - colsum(g) / nrows)) end }"},
    {.text = "return optimizer { name = 'slices', hyper = { lr = 0.1 }, view = 'last', state = { s "
             "= zeros 'slice' },\n"
             "  step = function() s = 0.5 * s + slice.sum(g * g)\n"
             "    p = p - lr * (rowmax(g) * slice.sum(g) + slice.sum(rowsum(g)) - "
             "sum(colsum(abs(g))))\n"
             "      / (1 + s) end }"},
    /* states that start as copies of p: of pieces, of ghosts (r of vectors) and of owners (r of
     * matrices) */
    {.text = "return optimizer { name = 'copied', hyper = { lr = 0.1 }, state = { s = copy(p), r = "
             "copy(p) },\n"
             "  step = function() s = lerp(s, p, 0.5) p = p - lr * (g / (1 + sum(abs(r))) + p - s) "
             "r = r - g end,\n"
             "  matrix = function() s = lerp(s, p, 0.5) r = mm(gram(r) / (1 + sum(r * r)), r) + g\n"
             "    p = p - lr * r - lr * (p - s) end }"},
    /* a fold over the tensor of values that are scaled per matrix; stacks may be cut between
     * matrices */
    {.text =
         "return optimizer { name = 'scaled', hyper = { lr = 0.1 }, view = 'last',\n"
         "  step = function() local u = g * slice.rms(g) p = p - lr * u / (1 + sum(u * u)) end }"},
    /* over all tensors; twice, and the second depends on the first */
    {.text = "return optimizer { name = 'totals', hyper = { lr = 0.01 },\n"
             "  step = function() local n = global.sum(g * g) local x = g / (1 + n)\n"
             "    p = p - lr * (x + 0.1 * global.max(abs(x)) + 0.01 * global.sum(x)) end }"},
};
enum { NMORE = sizeof more / sizeof *more };

static const char *library_rule(int i)
{
    for (int k = 0; k < optc_library_size(); k++)
        if (!strchr(optc_library_name(k), '/') && i-- == 0)
            return optc_library_name(k);
    return NULL;
}

static int library_rules(void)
{
    int n = 0;
    while (library_rule(n))
        n++;
    return n;
}

static RuleCase rule_case(int i)
{
    int n = library_rules();
    return i < n ? (RuleCase){.spec = library_rule(i)} : more[i - n];
}

static optc_engine *open_engine(void)
{
    optc_engine *e;
    setenv("OPTC_CFLAGS", "-O1", 0);                       /* of the rules that are compiled */
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    return e;
}

/* All pairs of a world and a cut. With one rank all cuts are equal. hsdp and grid need an even
 * number. */
typedef struct Pair { int ranks; ShardCut cut; } Pair;
enum { MOST_PAIRS = 5 * NCUTS, FEW = 2, STRIDE = 7 };
static int all_pairs(Pair pair[MOST_PAIRS])
{
    static const int worlds[] = {1, 2, 3, 4, 8};
    int n = 0;
    for (int w = 0; w < 5; w++)
        for (int cut = 0; cut < NCUTS; cut++)
            if ((worlds[w] > 1 || cut == CUT_even) &&
                !((cut == CUT_hsdp || cut == CUT_grid) && worlds[w] % 2))
                pair[n++] = (Pair){worlds[w], (ShardCut)cut};
    return n;
}

static void run_pairs(const WorldCase *c, const char *name, const Pair *pair, int n)
{
    Reference *r[2] = {NULL, NULL};                        /* tensors as they are, and as vectors */
    char *all = NULL;
    for (int i = 0; i < n; i++) {
        bool flat = pair[i].cut == CUT_flat;
        if (!r[flat])
            r[flat] = reference_run(c, flat);
        char *m = world_run(r[flat], pair[i].cut, pair[i].ranks);
        if (m && !strcmp(name, "adashift") &&
            strstr(m, "uses the ring of 'grads_0' on several ranks")) {
            /* refused: its pass reduces and reads the ring */
            free(m);
            m = NULL;
        }
        if (m) {                                           /* lists all pairs that fail */
            char *longer = format("%s\n    %s, %d ranks, %s: %s", all ? all : "", name,
                                  pair[i].ranks, shard_cut_name[pair[i].cut], m);
            free(all);
            free(m);
            all = longer;
        }
    }
    ck_assert_msg(!all, "%s", all);
    for (int i = 0; i < 2; i++)
        if (r[i])
            reference_free(r[i]);
}

START_TEST(rules)
{
    if (thinned(_i))
        return;
    RuleCase x = rule_case(_i);
    Pair all[MOST_PAIRS], few[FEW];
    int n = all_pairs(all);
    optc_engine *e = open_engine();
    optc_rule *r;
    OK(optc_compile(
        e,
        &(optc_rule_options){
            .spec = x.spec, .with = x.with, .options = x.options, .types = x.types, .text = x.text},
        &r));
    ck_assert_msg(optc_rule_native(r), "%s: %s", optc_rule_name(r), optc_rule_path(r));
    for (int i = 0; i < FEW; i++)
        few[i] = all[(_i * FEW + i) * STRIDE % n];
    char *name = format("%s%s%s%s%s", optc_rule_name(r), x.options ? " " : "",
                        x.options ? x.options : "", x.types ? " " : "", x.types ? x.types : "");
    const char *mode = getenv("OPTC_SHARDS");
    /* steps 1, 10, 11 and 100: the periods of the library's rules */
    WorldCase c = {
        .rule = r, .tensor = world_tensors, .n = world_ntensors, .steps = 4, .at = {0, 9, 0, 99}};
    if (sample(name, 1) < 0 || (mode && !strcmp(mode, "all")))
        run_pairs(&c, name, all, n);
    else
        run_pairs(&c, name, few, FEW);
    free(name);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Tensors that are too small for block codes store f32, and exchange it. */
START_TEST(codes_of_small_tensors)
{
    static const WorldTensor small[] = {{.name = "w", .shape = {2, {25, 40}}},
                                        {.name = "b", .shape = {1, {1000}}}};
    optc_engine *e = open_engine();
    optc_rule *r;
    OK(optc_compile(e, &(optc_rule_options){.spec = "lamb", .types = "m=q8,v=q8u"}, &r));
    WorldCase c = {.rule = r, .tensor = small, .n = 2, .steps = 3};
    const Pair pair[] = {{2, CUT_even}, {3, CUT_uneven}, {4, CUT_empty}};
    run_pairs(&c, "lamb m=q8,v=q8u", pair, 3);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* The pairs that `rules` chooses are all pairs. */
START_TEST(all_pairs_occur)
{
    Pair all[MOST_PAIRS];
    int n = all_pairs(all), seen[MOST_PAIRS] = {0}, rules = library_rules() + NMORE;
    for (int i = 0; i < rules * FEW; i++)
        seen[i * STRIDE % n]++;
    for (int i = 0; i < n; i++)
        ck_assert_msg(seen[i], "%d ranks, %s", all[i].ranks, shard_cut_name[all[i].cut]);
}
END_TEST

/* Every cut covers every tensor, and only the cuts with replicas have an element twice. */
START_TEST(cuts_cover)
{
    Pair all[MOST_PAIRS];
    int n = all_pairs(all), empty = 0, inside = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < world_ntensors; k++) {
            const WorldTensor *t = &world_tensors[k];
            int64_t whole = 1, sum = 0;
            for (int d = 0; d < t->shape.rank; d++)
                whole *= t->shape.dim[d];
            for (int rank = 0; rank < all[i].ranks; rank++) {
                Piece x = shard_piece(t, k, all[i].cut, rank, all[i].ranks);
                sum += x.count;
                empty += !x.count;
                inside += t->shape.rank == 2 && x.count && x.offset[0] * t->shape.dim[1] % OPTC_SEG;
            }
            bool replicas = !t->shape.rank || all[i].cut == CUT_replicas ||
                            (all[i].cut == CUT_mixed && k % 5 == 1);
            ck_assert_msg(sum == whole * (replicas                 ? all[i].ranks
                                          : all[i].cut == CUT_hsdp ? 2
                                                                   : 1),
                          "%s, %d ranks, %s", t->name, all[i].ranks, shard_cut_name[all[i].cut]);
        }
    ck_assert(empty > 50 && inside > 50);
}
END_TEST

/* States in block codes: pieces are ranges of whole blocks. */
START_TEST(coded_states)
{
    static const WorldTensor t[] = {
        {.name = "w", .shape = {2, {64, 128}}},
        {.name = "u", .shape = {2, {37, 256}}},
        {.name = "v", .shape = {1, {8192}}, .group = 1},
        {.name = "small", .shape = {1, {77}}, .group = 1},
    };
    static const RuleCase rule[] = {{.spec = "adamw", .with = "clip(1)", .types = "state=q8"},
                                    {.spec = "muon", .types = "state=q8"}};
    static const Pair pair[] = {{1, CUT_even}, {2, CUT_even},     {4, CUT_even},
                                {8, CUT_even}, {8, CUT_replicas}, {4, CUT_hsdp}};
    optc_engine *e = open_engine();
    optc_rule *r;
    const RuleCase *x = &rule[_i];
    OK(optc_compile(e, &(optc_rule_options){.spec = x->spec, .with = x->with, .types = x->types},
                    &r));
    run_pairs(&(WorldCase){.rule = r, .tensor = t, .n = 4, .steps = 3}, optc_rule_name(r), pair, 6);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Random draws, stochastic rounding and dithers follow the element's number in the whole tensor,
 * also if pieces consist of runs. The stack has runs of 6 and of 12 elements, and pieces whose runs
 * are not equally far apart (grid). */
START_TEST(draws_of_runs)
{
    static const WorldTensor t[] = {
        {.name = "w", .shape = {2, {40, 96}}},
        {.name = "odd", .shape = {2, {33, 130}}, .pauses = true},
        {.name = "s", .shape = {3, {5, 12, 24}}},
        {.name = "thin", .shape = {2, {700, 7}}},
        {.name = "v", .shape = {1, {4999}}, .group = 1},
    };
    static const WorldTensor blocks[] = {
        {.name = "w", .shape = {2, {40, 1024}}}, {.name = "small", .shape = {2, {20, 100}}},
        {.name = "v", .shape = {1, {8192}}, .group = 1},
    };
    static const RuleCase rule[] = {
        {.spec = "lion", .types = "param=bf16sr"},
        {.spec = "adamw", .types = "param=f16sr,state=bf16sr"},
        {.spec = "muon", .types = "param=bf16sr"},
        {.text =
             "return optimizer { name = 'noise', hyper = { lr = 0.01 }, state = { m = zeros },\n"
             "  step = function() m = 0.5 * m + g + normal() p = p - lr * m * random() end }"},
        {.spec = "adamw", .types = "param=bf16sr,m=q8,v=q8u"},
    };
    static const Pair pair[] = {{2, CUT_cols}, {3, CUT_cols},  {4, CUT_grid},
                                {8, CUT_grid}, {4, CUT_mixed}, {3, CUT_even}},
                      whole[] = {{2, CUT_cols}, {4, CUT_cols}, {8, CUT_cols}, {4, CUT_grid}};
    optc_engine *e = open_engine();
    optc_rule *r;
    const RuleCase *x = &rule[_i];
    bool codes = _i == 4;
    OK(optc_compile(e, &(optc_rule_options){.spec = x->spec, .types = x->types, .text = x->text},
                    &r));
    run_pairs(&(WorldCase){.rule = r, .tensor = codes ? blocks : t, .n = codes ? 3 : 5, .steps = 3},
              optc_rule_name(r), codes ? whole : pair, codes ? 4 : 6);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Folds over rows and columns on pieces of rows: more than one segment of rows and of columns,
 * several tiles side by side, cuts inside of tiles and segments, columns that do not divide a
 * segment. */
START_TEST(rows_and_columns)
{
    if (thinned(_i))
        return;
    static const WorldTensor t[] = {
        {.name = "tall", .shape = {2, {4200, 10}}},
        {.name = "wide", .shape = {2, {37, 4300}}},
        {.name = "tiles", .shape = {2, {200, 1300}}, .pauses = true},
        {.name = "small", .shape = {2, {9, 17}}},
        {.name = "cube", .shape = {3, {70, 5, 6}}},
        {.name = "v", .shape = {1, {4999}}, .group = 1},
    };
    static const RuleCase rule[] = {
        {.spec = "adafactor", .options = "momentum=true", .types = "param=bf16sr,state=f32"},
        {.spec = "came"},
        {.text = "return optimizer { name = 'both', hyper = { lr = 0.1 }, state = { r = zeros "
                 "'row', c = zeros 'col',\n"
                 "    s = zeros 'slice', m = zeros },\n"
                 "  step = function() m = 0.5 * m + g + random() r = 0.5 * r + rowsum(m) + normal "
                 "'row'\n"
                 "    c = 0.5 * c + colmax(abs(g)) + random 'col' s = 0.5 * s + sum(c) / (1 + "
                 "max(abs(r)))\n"
                 "    p = p - lr * (g + rowmin(g - c) + c * s / (1 + sum(abs(g * r)))) end }"},
        {.spec = "adafactor", .with = "clip(1)", .types = "param=bf16,state=f32"},
    };
    static const Pair pair[] = {{1, CUT_even},     {2, CUT_even},     {3, CUT_uneven},
                                {4, CUT_empty},    {8, CUT_even},     {4, CUT_hsdp},
                                {3, CUT_reversed}, {2, CUT_replicas}, {5, CUT_mixed}};
    optc_engine *e = open_engine();
    optc_rule *r;
    const RuleCase *x = &rule[_i];
    OK(optc_compile(e,
                    &(optc_rule_options){.spec = x->spec,
                                         .with = x->with,
                                         .options = x->options,
                                         .types = x->types,
                                         .text = x->text},
                    &r));
    run_pairs(&(WorldCase){.rule = r, .tensor = t, .n = 6, .steps = 2, .forgets = true},
              optc_rule_name(r), pair, sanitized() ? 3 : 9);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Owned tensors are exchanged in groups: with a small workspace there are several, up to about
 * eight. */
START_TEST(groups_of_tensors)
{
    static const char *const spec[] = {"muon", "copied"};
    static const char copied[] =           /* states of owners that start as copies of p */
        "return optimizer { name = 'copied', hyper = { lr = 0.1 }, state = { r = copy(p) },\n"
        "  step = function() r = r - g p = p - lr * r end,\n"
        "  matrix = function() r = mm(gram(r) / (1 + sum(r * r)), r) + g p = p - lr * r end }";
    static const Pair pair[] = {{2, CUT_even}, {3, CUT_uneven}, {4, CUT_cols}, {3, CUT_mixed}};
    optc_engine *e;
    optc_rule *r;
    OK(optc_open(&(optc_engine_options){.threads = 1, .workspace = 1 << 20,
                                        .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = spec[_i], .text = _i == 1 ? copied : NULL},
                    &r));
    run_pairs(&(WorldCase){.rule = r, .tensor = world_tensors, .n = world_ntensors, .steps = 2},
              spec[_i], pair, sanitized() ? 2 : 4);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Two bindings per rank, of f32 and of bf16 parameters, with one norm of all gradients
 * (optc_connect). */
enum { SETS = 2, CONNECTED_STEPS = 3 };
typedef struct Connected {
    WorldCase c[SETS];
    ShardCut cut;
    int ranks;
    optc_loopback *loopback;           /* NULL: plain bindings */
    RankData d[WORLD_RANKS][SETS];
    double norm[WORLD_RANKS][CONNECTED_STEPS][SETS];
    char *failure[WORLD_RANKS];
} Connected;

static optc_status connected_steps(Connected *x, int rank)
{
    optc_comm comm;
    optc_binding *b[SETS] = {NULL, NULL};
    optc_status s = x->loopback ? optc_loopback_comm(x->loopback, rank, &comm) : OPTC_OK;
    for (int i = 0; i < SETS && s == OPTC_OK; i++) {
        s = rank_bind(&x->d[rank][i], &x->c[i], x->loopback ? &comm : NULL);
        b[i] = x->d[rank][i].binding;
    }
    if (s == OPTC_OK)
        s = optc_connect(b, SETS);
    for (int t = 0; t < CONNECTED_STEPS; t++) {
        for (int i = 0; i < SETS; i++)
            rank_grads(&x->d[rank][i], &x->c[i], t + 1);
        if (s == OPTC_OK)
            s = optc_run_all(b, SETS, "step");
        for (int i = 0; i < SETS && s == OPTC_OK; i++)
            s = optc_read_value(b[i], 0, "clip.grad_norm", &x->norm[rank][t][i], 1);
    }
    return s;
}

static void connected_rank(int rank, void *arg)
{
    Connected *x = arg;
    if (connected_steps(x, rank) != OPTC_OK) {
        x->failure[rank] = format("%s", optc_message());
        optc_loopback_fail(x->loopback);
    }
}

static void connected_run(Connected *x, optc_engine *e, ShardCut cut, int ranks)
{
    x->cut = cut;
    x->ranks = ranks;
    if (ranks > 1)
        OK(optc_loopback_open(ranks, e, &x->loopback));
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < SETS; i++)
            rank_fill(&x->d[r][i], &x->c[i], cut, r, ranks);
    if (ranks > 1)
        run_ranks(ranks, connected_rank, x);
    else
        OK(connected_steps(x, 0));
    for (int r = 0; r < ranks; r++)
        ck_assert_msg(!x->failure[r], "%d ranks, %s: rank %d: %s", ranks, shard_cut_name[cut], r,
                      x->failure[r]);
}

static void connected_free(Connected *x)
{
    for (int r = 0; r < x->ranks; r++)
        for (int i = 0; i < SETS; i++)
            rank_free(&x->d[r][i], &x->c[i]);
    if (x->loopback)
        optc_loopback_close(x->loopback);
    free(x);
}

START_TEST(connected)
{
    static const WorldTensor t[] = {{.name = "w", .shape = {2, {70, 90}}},
                                    {.name = "s", .shape = {2, {18, 20}}},
                                    {.name = "v", .shape = {1, {4999}}, .group = 1}};
    static const char *const types[SETS] = {"param=f32", "param=bf16,state=f32"};
    static const char *const spec[] = {"adamw", "adafactor"};
    static const Pair pair[] = {
        {2, CUT_even}, {3, CUT_uneven}, {4, CUT_empty}, {3, CUT_cols}, {2, CUT_replicas}};
    optc_engine *e = open_engine();
    Connected *plain = calloc(1, sizeof *plain);
    for (int i = 0; i < SETS; i++) {
        plain->c[i] = (WorldCase){.tensor = t, .n = 3};
        OK(optc_compile(
            e,
            &(optc_rule_options){
                .spec = spec[_i], .with = "clip(0.1)", .types = types[i], .bindings = SETS},
            &plain->c[i].rule));
    }
    connected_run(plain, e, CUT_replicas, 1);
    for (int k = 0; k < 5; k++) {
        Connected *x = calloc(1, sizeof *x);
        memcpy(x->c, plain->c, sizeof x->c);
        connected_run(x, e, pair[k].cut, pair[k].ranks);
        for (int r = 0; r < x->ranks; r++) {
            ck_assert_msg(!memcmp(x->norm[r], plain->norm[0], sizeof x->norm[r]),
                          "%d ranks, %s: norm %.17g, plain %.17g", x->ranks, shard_cut_name[x->cut],
                          x->norm[r][0][0], plain->norm[0][0][0]);
            for (int i = 0; i < SETS * 3; i++) {
                const Piece *y = &x->d[r][i % SETS].piece[i / SETS];
                size_t size = i % SETS ? 2 : 4;
                const char *got = x->d[r][i % SETS].p[i / SETS],
                           *want = plain->d[0][i % SETS].p[i / SETS];
                for (int64_t at = 0; at < y->count; at++)
                    ck_assert_msg(!memcmp(got + (size_t)at * size,
                                          want + (size_t)piece_place(&t[i / SETS], y, at) * size,
                                          size),
                                  "%d ranks, %s: rank %d, binding %d, tensor %d, element %d",
                                  x->ranks, shard_cut_name[x->cut], r, i % SETS, i / SETS, (int)at);
            }
        }
        connected_free(x);
    }
    ck_assert(plain->norm[0][0][0] > 0.1 && plain->norm[0][0][0] == plain->norm[0][0][1]);
    optc_rule *r[SETS] = {plain->c[0].rule, plain->c[1].rule};
    connected_free(plain);
    OK(optc_release(r[0]));
    OK(optc_release(r[1]));
    OK(optc_close(e));
}
END_TEST

/* Matrices that are stacked by rows: `split` is that of the whole tensor. Cut between matrices and
 * inside them. */
START_TEST(split_tensors)
{
    static const WorldTensor t[] = {
        {.name = "heads", .shape = {2, {64, 24}}, .split = 4},
        {.name = "experts", .shape = {2, {120, 30}}, .split = 8},
        {.name = "plain", .shape = {2, {48, 40}}},
    };
    static const char *const rule[] = {"muon", "adafactor", "soap", "lamb"};
    static const Pair pair[] = {{2, CUT_even},   {4, CUT_even},  {8, CUT_even}, {3, CUT_even},
                                {3, CUT_uneven}, {8, CUT_empty}, {4, CUT_hsdp}, {2, CUT_replicas}};
    optc_engine *e = open_engine();
    optc_rule *r;
    OK(optc_compile(e, &(optc_rule_options){.spec = rule[_i]}, &r));
    run_pairs(&(WorldCase){.rule = r, .tensor = t, .n = 3, .steps = 2}, rule[_i], pair, 8);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

Suite *shards_suite(void)
{
    Suite *s = suite_create("shards");
    TCase *t = tcase_create("equal bits");
    tcase_set_timeout(t, getenv("OPTC_SHARDS") ? 1200 : 120);
    tcase_add_test(t, all_pairs_occur);
    tcase_add_test(t, codes_of_small_tensors);
    tcase_add_test(t, cuts_cover);
    tcase_add_loop_test(t, rules, 0, library_rules() + NMORE);
    tcase_add_loop_test(t, coded_states, 0, 2);
    tcase_add_loop_test(t, split_tensors, 0, 4);
    tcase_add_loop_test(t, connected, 0, 2);
    tcase_add_loop_test(t, groups_of_tensors, 0, 2);
    tcase_add_loop_test(t, draws_of_runs, 0, 5);
    tcase_add_loop_test(t, rows_and_columns, 0, 4);
    suite_add_tcase(s, t);
    return s;
}
