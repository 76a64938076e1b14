/* Makes the files of a package from templates/package_*.txt: the stages of its rules, tables that
 * describe them, and the sources of the runtime (package_sources.c). */
#include "gen/emit/package_text.h"

#include "gen/emit/emit.h"
#include "gen/emit/package_sources.h"
#include "gen/emit/program_make.h"
#include "gen/emit/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const flag[] = {"false", "true"};

static const char *function_name(Pack *p, int rule, const Plan *pl, const char *entry, int mask,
                                 const Stage *s)
{
    char name[MOST_STAGE_NAME];
    return arena_printf(&p->arena, "%s_%s", p->rule[rule].id,
                        emit_stage_name(name, pl, entry, mask, s));
}

/* Calls f for every function of a plan in order of its number, with the first stage that has it. */
typedef void (*EachStage)(Pack *p, int rule, const PlanEntry *en, int mask, const Stage *s,
                          void *ctx);
static void each_stage(Pack *p, int rule, const Plan *pl, EachStage f, void *ctx)
{
    for (int k = 0; k < pl->nfn; k++) {
        StageAt at = plan_at(pl, k);
        f(p, rule, at.entry, at.phase, at.stage, ctx);
    }
}

typedef struct { const Plan *plan; const char **v; int n, cap; } Names;
static void add_name(Pack *p, int rule, const PlanEntry *en, int mask, const Stage *s, void *ctx)
{
    Names *l = ctx;
    PUSH(&p->arena, l->v, l->n, l->cap) = function_name(p, rule, l->plan, en->name, mask, s);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool names_clash(Pack *p, bool gpu, const char **name)
{
    Names l = {0};
    for (int r = 0; r < p->nrule; r++) {
        l.plan = (gpu ? p->rule[r].gpu : p->rule[r].gen)->plan;
        each_stage(p, r, l.plan, add_name, &l);
    }
    if (l.n)
        qsort(l.v, (size_t)l.n, sizeof *l.v, by_text);
    for (int i = 1; i < l.n; i++)
        if (!strcmp(l.v[i - 1], l.v[i])) {
            *name = l.v[i];
            return true;
        }
    return false;
}

bool pack_clash(Pack *p, const char **name)
{
    return names_clash(p, false, name) || names_clash(p, true, name);
}

/* ---- tables ---- */
static void put_program(Pack *pk, Buf *b, const Plan *p, const char *id, const char *tables)
{
    Program x = *program_make(&pk->arena, p, arena_printf(&pk->arena, "%s_", id));
    x.name = id;
    program_print(b, &x, tables);
    buf_puts(b, "\n");
}

/* The functions of matrices by hashes of their specs: packed_rules[nrule + i] */
static void put_functions(const Pack *pk, Buf *b)
{
    buf_puts(b, "static const PackedFunction packed_functions[] = {\n");
    for (int i = pk->nrule - pk->nfunction; i < pk->nrule; i++) {
        const char *text = pk->rule[i].text;
        buf_printf(b, "    {0x%llxu, 0x%llxu, %d},\n",
                   (unsigned long long)hash64(1, text, strlen(text)),
                   (unsigned long long)hash64(2, text, strlen(text)), pk->rule[i].gen->plan->p);
    }
    buf_puts(b, "    {0, 0, -1}};\n");
}

static void put_rules(Pack *pk, Buf *b)
{
    Buf rows = {.arena = &pk->arena};
    int first = 0;
    buf_puts(b, "static const ProgType program_types[] = {");
    for (int t = 0; t < NTYPES; t++)
        buf_printf(b, "%s{\"%s\", %d, %d}", t ? ", " : "", program_types[t].name,
                   program_types[t].bytes, program_types[t].block);
    buf_puts(b, "};\n\n");
    for (int i = 0; i < pk->nrule; i++) {
        const char *id = pk->rule[i].id, *on_gpu = id;
        const Plan *cpu = pk->rule[i].gen->plan, *gpu = pk->rule[i].gpu->plan;
        put_program(pk, b, cpu, id, id);
        if (gpu != cpu)
            /* no rule has such a name */
            put_program(pk, b, gpu, id, on_gpu = arena_printf(&pk->arena, "2%s", id));
        buf_printf(&rows, "    {&program_%s, &program_%s, table_cpu_%s, %d},\n", id, on_gpu, id,
                   first);
        first += gpu->nfn;
    }
    buf_printf(b,
               "static const PackedRule packed_rules[] = {\n%s};\nenum { nall = sizeof "
               "packed_rules / sizeof "
               "*packed_rules, nrule = nall - %d };\n",
               buf_text(&rows), pk->nfunction);
    if (pk->functions)
        put_functions(pk, b);
}

typedef struct { Buf *b; const Launch *l; } LaunchRow;
static void put_launch(Pack *p, int rule, const PlanEntry *en, int mask, const Stage *s, void *ctx)
{
    LaunchRow *row = ctx;
    const int *v = row->l[s->fn].v;
    buf_puts(row->b, "    {{");
    for (int k = 0; k < NKNOB; k++)
        buf_printf(row->b, "%s%d", k ? ", " : "", v[k]);
    buf_printf(row->b, "}},    /* %s */\n",
               function_name(p, rule, p->rule[rule].gpu->plan, en->name, mask, s));
}

/* The first architecture with the same launches: equal tables are printed once. */
static const PackArch *same_launches(const Pack *p, int arch)
{
    for (int a = 0; a < arch; a++) {
        bool same = true;
        for (int r = 0; r < p->nrule && same; r++)
            same = !memcmp(p->arch[a].launch[r], p->arch[arch].launch[r],
                           sizeof(Launch) * (size_t)p->rule[r].gpu->plan->nfn);
        if (same)
            return &p->arch[a];
    }
    return &p->arch[arch];
}

static void put_methods(const PackArch *x, Buf *b)
{
    if (!x->nmethod)
        return;
    buf_printf(b,
               "/* Measured methods for eigenvectors and roots: roots, f64, power of two of rows, "
               "bucket of\n"
               " * matrices, method. */\n"
               "static const KnownMethod method_sm_%d[] = {\n",
               x->arch);
    for (int i = 0; i < x->nmethod; i++)
        buf_printf(b, "    {%d, %d, %d, %d, %d},\n", x->method[i].roots, x->method[i].f64,
                   x->method[i].power, x->method[i].bucket, x->method[i].method);
    buf_puts(b, "};\n");
}

static void put_launches(Pack *pk, Buf *b)
{
    if (!pk->narch) {                          /* C has no empty tables */
        buf_puts(b, "static const Arch archs[] = {{0, false, NULL, NULL, 0}};\n"
                    "enum { narch = 0 };     /* CPU only */\n");
        return;
    }
    buf_puts(b, "/* Launch parameters by architecture and stage:");
    for (int k = 0; k < NKNOB; k++)
        buf_printf(b, " %s", knob_name[k]);
    buf_puts(b, ". They are built into the code. */\n");
    for (int a = 0; a < pk->narch; a++) {
        const PackArch *x = &pk->arch[a];
        if (same_launches(pk, a) != x)
            continue;
        buf_printf(b, "static const Launch launch_%s_%d[] = {\n", x->ptx ? "compute" : "sm",
                   x->arch);
        for (int r = 0; r < pk->nrule; r++)
            each_stage(pk, r, pk->rule[r].gpu->plan, put_launch, &(LaunchRow){b, x->launch[r]});
        buf_puts(b, "};\n");
    }
    for (int a = 0; a < pk->narch; a++)
        put_methods(&pk->arch[a], b);
    buf_puts(b, "static const Arch archs[] = {\n");
    for (int a = 0; a < pk->narch; a++) {
        const PackArch *x = same_launches(pk, a), *own = &pk->arch[a];
        buf_printf(b, "    {%d, %s, launch_%s_%d, ", own->arch, flag[own->ptx],
                   x->ptx ? "compute" : "sm", x->arch);
        buf_printf(b, own->nmethod ? "method_sm_%d, %d},\n" : "NULL, 0},\n", own->arch,
                   own->nmethod);
    }
    buf_puts(b, "};\nenum { narch = sizeof archs / sizeof *archs };\n");
}

/* ---- files ---- */
static const char *title_of(Pack *p, int rule)
{
    const Gen *g = p->rule[rule].gen;
    Buf b = {.arena = &p->arena};
    buf_puts(&b, g->rule->name);
    if (*g->rule->with)
        buf_printf(&b, " with %s", g->rule->with);
    for (int i = 0; i < g->rule->noption; i++)
        buf_printf(&b, "%s%s=%s", i ? "," : ", options ", g->rule->option[i].name,
                   g->rule->option[i].value);
    buf_printf(&b, ", %s", type_info[g->plan->p].name);
    if (g->plan->g != g->plan->p || g->plan->state != g->plan->p)
        buf_printf(&b, " (gradients %s, states %s)", type_info[g->plan->g].name,
                   type_info[g->plan->state].name);
    if (g->rule->types)
        buf_printf(&b, ", %s", g->rule->types);
    return emit_comment_text(&p->arena, buf_text(&b));
}

static const char *rule_list(Pack *p)
{
    Buf b = {.arena = &p->arena};
    for (int i = 0; i < p->nrule - p->nfunction; i++)
        buf_printf(&b, " *   %-20s %s\n", p->rule[i].id, title_of(p, i));
    if (p->functions)
        buf_printf(&b, " *   %-20s %s\n", "functions of matrices",
                   emit_comment_text(&p->arena, p->functions));
    return buf_text(&b);
}

static const char *stored_as(Arena *a, Type t, const char *x)
{
    return emit_call_text(a, type_info[t].store,
                          arena_printf(a, "(%s)%s", type_info[type_info[t].compute].c, x));
}

/* The stages of all rules as C, and a table of functions for each rule. */
static bool fill_stages(Pack *p, Buf *out, const PackSources *sources, const Hole *common,
                        int ncommon)
{
    Arena *a = &p->arena;
    Buf code = {.arena = a}, tables = {.arena = a}, shared = {.arena = a};
    bool ok = true;
    for (int i = 0; i < p->nrule && ok; i++) {
        EmitOptions o = {.target = &target_c, .prefix = arena_printf(a, "%s_", p->rule[i].id)};
        buf_printf(&code, "/* ---- the stages of %s ---- */\n", p->rule[i].id);
        buf_printf(&tables, "static const optc_stage_fn table_cpu_%s[] = { ", p->rule[i].id);
        ok = emit_c_stages(p->rule[i].gen, &o, a, &code, &tables);
        buf_puts(&tables, " };\n");
    }
    Buf all = {.arena = a};                    /* the runtime uses the same prelude as the stages */
    buf_puts(&all, buf_text(&code));
    for (int i = 0; i < sources->n; i++)
        buf_puts(&all, pack_source(sources->path[i]));
    buf_puts(&all, pack_source("gen/abi/types.def"));
    buf_puts(&all, pack_source("gen/abi/stages.def"));
    for (int t = 0; t < NTYPES; t++)           /* names that state_access.c makes with ## */
        if (type_coded((Type)t))
            buf_printf(&all, " %s_per_top %s_floor %s_least %s_signed\n", type_info[t].store,
                       type_info[t].store, type_info[t].store, type_info[t].store);
    emit_c_shared(&shared, buf_text(&all));
    Hole h[24] = {{"abi", emit_c_abi(a)},
                  {"math", buf_text(&shared)},
                  {"stages", buf_text(&code)},
                  {"tables", buf_text(&tables)}};
    memcpy(h + 4, common, sizeof *h * (size_t)ncommon);
    Buf text = {.arena = a};
    ok = ok && template_fill(&text, "package_stages.txt", "stages", h, 4 + ncommon);
    emit_wrap(out, buf_text(&text));
    return ok;
}

static void put_words(Buf *b, const char *data, size_t n)
{
    const unsigned char *s = (const unsigned char *)data;
    char line[40];
    for (size_t at = 0; at < n; at += 8) {
        unsigned long long w = 0;
        for (size_t i = 8; i-- > 0;)
            w = w << 8 | (at + i < n ? s[at + i] : 0u);
        int len =
            snprintf(line, sizeof line, "0x%llx,%s", w, at / 8 % 8 == 7 || at + 8 >= n ? "\n" : "");
        buf_add(b, line, (size_t)len);
    }
}

static bool fill_tables(Pack *p, Buf *out)
{
    Arena *a = &p->arena;
    Buf rules = {.arena = a}, launches = {.arena = a};
    char sum[17];
    put_rules(p, &rules);
    put_launches(p, &launches);
    snprintf(sum, sizeof sum, "%llx", (unsigned long long)hash64(1, p->fatbin, p->fatbin_size));
    Hole h[] = {{"rules", buf_text(&rules)},
                {"launches", buf_text(&launches)},
                {"cuda", arena_printf(a, "%d", p->cuda)},
                {"bytes", arena_printf(a, "%zu", p->fatbin_size)},
                {"sum", sum}};
    return template_fill(out, "package_files.txt", "tables", h, 5);
}

/* The headers of the runtime. Without GPU code they declare functions that are not in the package.
 * gcc decides about this warning at the end of the file, so the pragma holds until there. */
static bool paste_headers(Pack *p, Buf *out, const char *header, const PackSources *s)
{
    if (!p->narch)
        buf_puts(out, "#pragma GCC diagnostic ignored \"-Wunused-function\"\n");
    return pack_paste(p, out, header, s, 0, s->end[0]);
}

static bool fill_source(Pack *p, Buf *out, const Hole *common, int n)
{
    /* environment variables are renamed too */
    const char *header =
        arena_printf(&p->arena, "%s OPTC_NO_CUDA OPTC_NO_GRAPHS ", pack_public_header(p));
    Buf words = {.arena = &p->arena}, host = {.arena = &p->arena};
    if (p->fatbin)
        put_words(&words, p->fatbin, p->fatbin_size);
    else
        buf_puts(&words, "0");
    Hole fatbin[] = {{"words", buf_text(&words)}, {"p", p->name}};
    PackSources s;
    if (p->functions && !template_fill(&host, "package_host.txt", "functions_ahead", common, n))
        return false;
    if (!pack_sources(p, &s) || !fill_stages(p, out, &s, common, n) ||
        !template_fill(out, "package_host.txt", "head", common, n) ||
        !paste_headers(p, out, header, &s) ||
        !template_fill(out, "package_host.txt", "types", common, n) || !fill_tables(p, out) ||
        !template_fill(out, "package_host.txt", "loops", common, n) ||
        !pack_paste(p, out, header, &s, s.end[0], s.end[1]) ||
        !template_fill(out, "package_host.txt", "steps", common, n) ||
        !pack_paste(p, out, header, &s, s.end[1], s.end[2]) ||
        !template_fill(out, "package_host.txt", "binds", common, n) ||
        !pack_paste(p, out, header, &s, s.end[2], s.n) ||
        !template_fill(&host, "package_host.txt", "host", common, n) ||
        (p->functions && !template_fill(&host, "package_host.txt", "functions", common, n)))
        return false;
    pack_rename(p, out, header, buf_text(&host), strlen(buf_text(&host)));
    return template_fill(out, "package_host.txt", "end", common, n) &&
           template_fill(out, "package_files.txt", "fatbin", fatbin, 2);
}

static bool fill_header(Pack *p, Buf *out, const Hole *common, int n)
{
    const char *header = pack_public_header(p);
    Buf head = {.arena = &p->arena};
    if (!template_fill(&head, "package_header.txt", "header", common, n))
        return false;
    buf_puts(out, buf_text(&head));
    pack_rename(p, out, header, header, strlen(header));
    return true;
}

/* The example steps the first rule. It contains a copy of the package's conversions if values are
 * 16 bits wide. */
static bool fill_example(Pack *p, Buf *out, const Hole *common, int n)
{
    const Plan *pl = p->rule[0].gen->plan;
    const Rule *r = pl->rule;
    bool small = type_info[pl->p].compute != pl->p || type_info[pl->g].compute != pl->g;
    Buf inputs = {.arena = &p->arena}, freed = {.arena = &p->arena};
    for (int i = 0; i < r->ninput; i++)
        if (r->input[i].dom == GROUP) {
            buf_printf(&inputs, "    check(%s_set_scalar(b, -1, \"%s\", 1));\n", p->name,
                       r->input[i].name);
        } else {
            buf_printf(&inputs,
                       "    void *input_%d[2];\n    for (int k = 0; k < 2; k++) {\n"
                       "        input_%d[k] = room(e, count[k] * (int64_t)sizeof(double));\n"
                       "        check(%s_set_input(b, k, \"%s\", input_%d[k], 0));\n    }\n",
                       i, i, p->name, r->input[i].name, i);
            buf_printf(
                &freed,
                "    for (int k = 0; k < 2; k++)\n        check(%s_free(e, input_%d[k], NULL));\n",
                p->name, i);
        }
    Buf text = {.arena = &p->arena};
    if (small) {
        buf_puts(&text, "#define OPTC_FN static inline __attribute__((unused))\n\n");
        emit_c_shared(&text, arena_printf(&p->arena, "%s %s %s", type_info[pl->p].load,
                                          type_info[pl->p].store, type_info[pl->g].store));
    }
    Hole h[24] = {{"rule", p->rule[0].id},
                  {"small", buf_text(&text)},
                  {"ctype", type_info[pl->p].c},
                  {"type", type_info[pl->p].name},
                  {"load", emit_call_text(&p->arena, type_info[pl->p].load, "x")},
                  {"store", stored_as(&p->arena, pl->p, "x")},
                  {"gtype", type_info[pl->g].c},
                  {"gstore", stored_as(&p->arena, pl->g, "x")},
                  {"inputs", buf_text(&inputs)},
                  {"freed", buf_text(&freed)}};
    memcpy(h + 10, common, sizeof *h * (size_t)n);
    return template_fill(out, "package_files.txt", "example", h, 10 + n);
}

static bool fill(Pack *p, PackFile f, Buf *out)
{
    static const char functions_open[] = "    optc_status opened = matrices_open(e);\n"
                                         "    if (opened != OPTC_OK)\n        return opened;\n";
    const char *P = pack_upper(&p->arena, p->name);
    Hole common[] = {
        {"p", p->name},
        {"P", P},
        {"version", p->version},
        {"command", emit_comment_text(&p->arena, p->command)},
        {"rules", rule_list(p)},
        {"first", p->rule[0].id},
        {"functions_open", p->functions ? functions_open : ""},
        {"functions_close",
         p->functions ? "    functions_close(e);\n    matrices_close(e);\n" : ""},
        {"function_hooks", p->functions ? "packed_function, packed_matrices" : "NULL, NULL"}};
    int n = sizeof common / sizeof *common;
    switch (f) {
    case PACK_HEADER: return fill_header(p, out, common, n);
    case PACK_SOURCE: return fill_source(p, out, common, n);
    case PACK_EXAMPLE: return fill_example(p, out, common, n);
    case PACK_LICENSE: buf_puts(out, pack_source("LICENSE")); return true;
    default:
        return template_fill(out, "package_files.txt", f == PACK_MAKEFILE ? "makefile" : "cmake",
                             common, n);
    }
}

/* Templates of kernels that functions of matrices need and that belong to no rule. */
static const char *const matrices[] = {"copy", "gram", "kron"};

static bool fill_cuda(Pack *p, int arch, Buf *out)
{
    Buf code = {.arena = &p->arena};
    const Plan **plan = NEWS(&p->arena, const Plan *, p->nrule + p->ndonor + 1);
    for (int i = 0; i < p->nrule; i++)
        plan[i] = p->rule[i].gpu->plan;
    for (int i = 0; i < p->ndonor; i++)
        plan[p->nrule + i] = p->donor[i]->plan;
    bool ok = emit_cuda_common(&code, plan, p->nrule) &&
              emit_cuda_calls(&code, plan, p->nrule + p->ndonor);
    for (int i = 0; i < 3 && ok && p->functions; i++)
        ok = emit_cuda_matrices(&code, matrices[i]);
    for (int i = 0; i < p->nrule && ok; i++) {
        EmitOptions o = {.target = &target_cuda,
                         .prefix = arena_printf(&p->arena, "%s_", p->rule[i].id),
                         .launch = p->arch[arch].launch[i]};
        ok = emit_cuda_stages(p->rule[i].gpu, &o, &p->arena, &code);
    }
    return ok && emit_cuda_file(out, &p->arena, p->name, " * a package of optc", p->command,
                                p->name, buf_text(&code));
}

/* Catches the arena's out-of-memory jump. file < 0: the CUDA program. */
static char *guarded(Pack *p, int file, int arch)
{
    jmp_buf out, *before = p->arena.out;
    char *volatile text = NULL;
    LocaleMark was = locale_plain();
    p->arena.out = &out;
    if (!setjmp(out)) {
        Buf b = {.arena = &p->arena};
        if (file < 0 ? fill_cuda(p, arch, &b) : fill(p, (PackFile)file, &b))
            text = buf_take(&b);
    }
    p->arena.out = before;
    locale_back(was);
    return text;
}

char *pack_cuda(Pack *p, int arch) { return guarded(p, -1, arch); }
char *pack_file(Pack *p, PackFile f) { return guarded(p, (int)f, 0); }

/* ---- the manifest's rules ---- */
typedef struct { Buf *b; const Launch *l; } ManifestRow;
static void launch_line(Pack *p, int rule, const PlanEntry *en, int mask, const Stage *s, void *ctx)
{
    (void)p, (void)rule, (void)en, (void)mask;
    ManifestRow *row = ctx;
    buf_printf(row->b, " %d:", s->fn);
    for (int k = 0; k < NKNOB; k++)
        buf_printf(row->b, "%s%d", k ? "," : "", row->l[s->fn].v[k]);
}

/* The library finds these kernels by the hash of their own program. They have no launches. */
static bool manifest_matrices(const Pack *p, Buf *b)
{
    for (int i = 0; i < 3; i++) {
        char key[DIGEST_HEX], *source = emit_cuda_alone(matrices[i]);
        bool known = source && emit_key(source, key);
        free(source);
        if (!known)
            return false;
        buf_printf(b, "rule matrices_%s\n  kind function\n  key %s\n", matrices[i], key);
        for (int a = 0; a < p->narch; a++)
            buf_printf(b, "  launch %s_%d\n", p->arch[a].ptx ? "compute" : "sm", p->arch[a].arch);
    }
    return true;
}

bool pack_manifest_rules(Pack *p, Buf *b)
{
    for (int i = 0; i < p->nrule; i++) {
        const Gen *g = p->rule[i].gen;
        buf_printf(b, "rule %s\n%s  spec %s %s\n  with %s\n  options ", p->rule[i].id,
                   p->rule[i].text ? "  kind function\n" : "", g->rule->name, p->rule[i].spec,
                   *g->rule->with ? g->rule->with : "-");
        for (int k = 0; k < g->rule->noption; k++)
            buf_printf(b, "%s%s=%s", k ? "," : "", g->rule->option[k].name,
                       g->rule->option[k].value);
        buf_printf(b, "%s\n  types %s %s %s%s%s\n  key %s\n  prefix %s_\n",
                   g->rule->noption ? "" : "-", type_info[g->plan->p].name,
                   type_info[g->plan->g].name, type_info[g->plan->state].name,
                   g->rule->types ? " " : "", g->rule->types ? g->rule->types : "", p->rule[i].key,
                   p->rule[i].id);
        for (int a = 0; a < p->narch; a++) {
            buf_printf(b, "  launch %s_%d", p->arch[a].ptx ? "compute" : "sm", p->arch[a].arch);
            each_stage(p, i, p->rule[i].gpu->plan, launch_line,
                       &(ManifestRow){b, p->arch[a].launch[i]});
            buf_puts(b, "\n");
        }
    }
    return !p->functions || !p->narch || manifest_matrices(p, b);
}
