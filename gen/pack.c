/* The text of a package: templates/package_*.txt around the stages of its rules and the tables that describe them. */
#include "pack.h"

#include "emit.h"
#include "template.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const dom_id[NDOM] = {"CONST_", "GROUP", "TENSOR", "SLICE", "ROW", "COL", "ELEM"};
static const char *const mem_id[] = {"MEM_P", "MEM_G", "MEM_INPUT", "MEM_STATE", "MEM_TEMP", "MEM_PART"};
static const char *const stage_id[NSTAGEKIND] = {"S_GROUP", "S_TENSOR", "S_SLICE", "S_ROW", "S_COL", "S_FLAT", "S_TILE", "S_BAND"};
static const char *const form_id[NFORM] = {"FORM_MAP", "FORM_FOLD", "FORM_TILE", "FORM_ROWS", "FORM_LIST", "FORM_LANES", "FORM_COLS", "FORM_SLICES", "FORM_SINGLE", "FORM_CPU"};
static const char *const flag[] = {"false", "true"};

const char *pack_kernel(Pack *p, int rule, const char *entry, int mask, const Stage *s)
{
    char name[MOST_STAGE_NAME];
    return arena_printf(&p->arena, "%s_%s", p->rule[rule].id, emit_stage_name(name, p->rule[rule].gen->plan, entry, mask, s));
}

/* Calls f for every stage of every rule, in the order of their numbers. */
typedef void (*EachStage)(Pack *p, int rule, const PlanEntry *en, int mask, const Stage *s, void *ctx);
static void each_stage(Pack *p, int rule, EachStage f, void *ctx)
{
    const Plan *pl = p->rule[rule].gen->plan;
    for (int e = 0; e < pl->nentry; e++)
        for (int m = 0; m < pl->entry[e].nphase; m++)
            for (int i = 0; i < pl->entry[e].phase[m].nstage; i++)
                f(p, rule, &pl->entry[e], m, &pl->entry[e].phase[m].stage[i], ctx);
}

typedef struct { const char **v; int n, cap; } Names;
static void add_name(Pack *p, int rule, const PlanEntry *en, int mask, const Stage *s, void *ctx)
{
    Names *l = ctx;
    PUSH(&p->arena, l->v, l->n, l->cap) = pack_kernel(p, rule, en->name, mask, s);
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

bool pack_clash(Pack *p, const char **name)
{
    Names l = {0};
    for (int r = 0; r < p->nrule; r++)
        each_stage(p, r, add_name, &l);
    if (l.n)
        qsort(l.v, (size_t)l.n, sizeof *l.v, by_text);
    for (int i = 1; i < l.n; i++)
        if (!strcmp(l.v[i - 1], l.v[i])) {
            *name = l.v[i];
            return true;
        }
    return false;
}

/* ---- tables ---- */
static void put_double(Buf *b, double x)
{
    if (isinf(x))
        buf_puts(b, x < 0 ? "-__builtin_inf()" : "__builtin_inf()");
    else
        buf_double(b, x);
}

static void put_hypers(Buf *b, const char *id, const Rule *r)
{
    buf_printf(b, "static const Hyper table_hyper_%s[] = {\n", id);
    for (int i = 0; i < r->nhyper; i++) {
        const double v[] = {r->hyper[i].def, r->hyper[i].lo, r->hyper[i].hi};
        buf_printf(b, "    {\"%s\"", r->hyper[i].name);
        for (int k = 0; k < 3; k++) {
            buf_puts(b, ", ");
            put_double(b, v[k]);
        }
        buf_printf(b, ", %d, %d},\n", r->hyper[i].lo_open, r->hyper[i].hi_open);
    }
    buf_puts(b, r->nhyper ? "};\n" : "    {\"\", 0, 0, 0, 0, 0},\n};\n");
}

static void put_mems(Buf *b, const char *id, const Plan *p)
{
    buf_printf(b, "static const Mem table_mem_%s[] = {\n", id);
    for (int k = 0; k < p->nmem; k++) {
        const Mem *m = &p->mem[k];
        const State *s = m->kind == MEM_STATE ? &p->rule->state[m->sym] : NULL;
        buf_printf(b, "    {%s, %s, %s, %s, %d, \"%s\", %s, ", mem_id[m->kind], dom_id[m->dom], dom_id[m->from], stage_id[m->by], (int)m->type, m->name ? m->name : "",
                   s && s->init == INIT_COPY_P ? "INIT_COPY_P" : "INIT_FILL");
        put_double(b, s && s->init == INIT_FILL ? s->value : 0);
        buf_puts(b, ", {");
        for (int v = 0; v < 2; v++)
            buf_printf(b, "%s%s", v ? ", " : "", flag[s && v < p->rule->nvariant && p->state_used[v * p->rule->nstate + m->sym]]);
        buf_puts(b, "}},\n");
    }
    buf_puts(b, "};\n");
}

/* Gradients and inputs that a stage reads: a step looks whether they are there. */
static int put_reads(Buf *b, const char *id, const Plan *p, const Stage *s)
{
    int n = 0;
    for (int k = 0; k < s->nload; k++) {
        const Mem *m = &p->mem[s->load[k].mem];
        if (m->kind != MEM_G && (m->kind != MEM_INPUT || m->dom == GROUP))
            continue;
        if (!n)
            buf_printf(b, "static const int table_reads_%s_%d[] = {", id, s->fn);
        buf_printf(b, "%s%d", n++ ? ", " : "", s->load[k].mem);
    }
    if (n)
        buf_puts(b, "};\n");
    return n;
}

static void put_phase(Pack *pk, Buf *b, int rule, int entry, int mask)
{
    const char *id = pk->rule[rule].id;
    const Plan *p = pk->rule[rule].gen->plan;
    const PlanEntry *en = &p->entry[entry];
    const Phase *ph = &en->phase[mask];
    Buf rows = {.arena = &pk->arena};
    for (int i = 0; i < ph->nstage; i++) {
        const Stage *s = &ph->stage[i];
        int reads = put_reads(b, id, p, s);
        buf_printf(&rows, "    {%s, %s, %d, %d, %s, ", stage_id[s->kind], s->variant ? "MAT" : "VEC", s->time, s->fn, form_id[stage_form(s)]);
        if (reads)
            buf_printf(&rows, "table_reads_%s_%d, %d", id, s->fn, reads);
        else
            buf_puts(&rows, "NULL, 0");
        buf_printf(&rows, ", \"%s\"},\n", pack_kernel(pk, rule, en->name, mask, s));
    }
    if (ph->nstage)
        buf_printf(b, "static const Stage table_stages_%s_%d_%d[] = {\n%s};\n", id, entry, mask, buf_text(&rows));
}

static void put_entries(Pack *pk, Buf *b, int rule)
{
    const char *id = pk->rule[rule].id;
    const Plan *p = pk->rule[rule].gen->plan;
    for (int e = 0; e < p->nentry; e++) {
        const PlanEntry *en = &p->entry[e];
        for (int m = 0; m < en->nphase; m++)
            put_phase(pk, b, rule, e, m);
        buf_printf(b, "static const Phase table_phases_%s_%d[] = {", id, e);
        for (int m = 0; m < en->nphase; m++)
            if (en->phase[m].nstage)
                buf_printf(b, "%s{table_stages_%s_%d_%d, %d}", m ? ", " : "", id, e, m, en->phase[m].nstage);
            else
                buf_printf(b, "%s{NULL, 0}", m ? ", " : "");
        buf_puts(b, "};\n");
    }
    buf_printf(b, "static const Entry table_entries_%s[] = {", id);
    for (int e = 0; e < p->nentry; e++)
        buf_printf(b, "%s{\"%s\", table_phases_%s_%d}", e ? ", " : "", p->entry[e].name, id, e);
    buf_puts(b, "};\n");
    if (p->nperiod)
        buf_printf(b, "static const int table_period_%s[] = {", id);
    for (int i = 0; i < p->nperiod; i++)
        buf_printf(b, "%s%d%s", i ? ", " : "", p->period[i], i + 1 < p->nperiod ? "" : "};\n");
}

static void put_rules(Pack *pk, Buf *b)
{
    Buf rows = {.arena = &pk->arena};
    int first = 0;
    for (int i = 0; i < pk->nrule; i++) {
        const char *id = pk->rule[i].id;
        const Plan *p = pk->rule[i].gen->plan;
        const Rule *r = p->rule;
        put_hypers(b, id, r);
        put_mems(b, id, p);
        put_entries(pk, b, i);
        buf_puts(b, "\n");
        buf_printf(&rows, "    {\"%s\", table_hyper_%s, %d, table_mem_%s, %d, table_entries_%s, %d, ", id, id, r->nhyper, id, p->nmem, id, p->nentry);
        if (p->nperiod)
            buf_printf(&rows, "table_period_%s, %d, ", id, p->nperiod);
        else
            buf_puts(&rows, "NULL, 0, ");
        buf_printf(&rows, "table_cpu_%s, %d, %d, %d, %d, %d, %s, %s},\n", id, p->nfn, first, (int)p->p, (int)p->g, rule_view(r), flag[r->nvariant > 1], flag[plan_uses_t(p)]);
        first += p->nfn;
    }
    buf_printf(b, "static const Rule rules[] = {\n%s};\nenum { nrule = sizeof rules / sizeof *rules };\n", buf_text(&rows));
}

typedef struct { Buf *b; const Launch *l; } LaunchRow;
static void put_launch(Pack *p, int rule, const PlanEntry *en, int mask, const Stage *s, void *ctx)
{
    LaunchRow *row = ctx;
    const int *v = row->l[s->fn].v;
    buf_puts(row->b, "    {{");
    for (int k = 0; k < NKNOB; k++)
        buf_printf(row->b, "%s%d", k ? ", " : "", v[k]);
    buf_printf(row->b, "}},    /* %s */\n", pack_kernel(p, rule, en->name, mask, s));
}

/* The first architecture with these launches: tables that are alike are printed once. */
static const PackArch *same_launches(const Pack *p, int arch)
{
    for (int a = 0; a < arch; a++) {
        bool same = true;
        for (int r = 0; r < p->nrule && same; r++)
            same = !memcmp(p->arch[a].launch[r], p->arch[arch].launch[r], sizeof(Launch) * (size_t)p->rule[r].gen->plan->nfn);
        if (same)
            return &p->arch[a];
    }
    return &p->arch[arch];
}

static void put_launches(Pack *pk, Buf *b)
{
    buf_puts(b, "/* Launch parameters by architecture and stage:");
    for (int k = 0; k < NKNOB; k++)
        buf_printf(b, " %s", knob_name[k]);
    buf_puts(b, ". The code has them built in. */\n");
    for (int a = 0; a < pk->narch; a++) {
        const PackArch *x = &pk->arch[a];
        if (same_launches(pk, a) != x)
            continue;
        buf_printf(b, "static const Launch launch_%s_%d[] = {\n", x->ptx ? "compute" : "sm", x->arch);
        for (int r = 0; r < pk->nrule; r++)
            each_stage(pk, r, put_launch, &(LaunchRow){b, x->launch[r]});
        buf_puts(b, "};\n");
    }
    buf_puts(b, "static const Arch archs[] = {\n");
    for (int a = 0; a < pk->narch; a++) {
        const PackArch *x = same_launches(pk, a);
        buf_printf(b, "    {%d, %s, launch_%s_%d},\n", pk->arch[a].arch, flag[pk->arch[a].ptx], x->ptx ? "compute" : "sm", x->arch);
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
        buf_printf(&b, "%s%s=%s", i ? "," : ", options ", g->rule->option[i].name, g->rule->option[i].value);
    buf_printf(&b, ", %s", type_info[g->plan->p].name);
    if (g->plan->g != g->plan->p || g->plan->state != g->plan->p)
        buf_printf(&b, " (gradients %s, states %s)", type_info[g->plan->g].name, type_info[g->plan->state].name);
    return emit_plain(&p->arena, buf_text(&b));
}

static const char *rule_list(Pack *p)
{
    Buf b = {.arena = &p->arena};
    for (int i = 0; i < p->nrule; i++)
        buf_printf(&b, " *   %-20s %s\n", p->rule[i].id, title_of(p, i));
    return buf_text(&b);
}

static const char *upper(Arena *a, const char *s)
{
    char *t = arena_strdup(a, s);
    for (char *c = t; *c; c++)
        *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    return t;
}

/* A load or store form of types.def with its hole filled. */
static const char *formed(Arena *a, const char *form, const char *x)
{
    const char *hole = strstr(form, "%x");
    return hole ? arena_printf(a, "%.*s%s%s", (int)(hole - form), form, x, hole + 2) : form;
}

static const char *stored_as(Arena *a, Type t, const char *x)
{
    return formed(a, type_info[t].store, arena_printf(a, "(%s)%s", type_info[type_info[t].compute].c, x));
}

static const char *type_cases(Arena *a, bool store)
{
    Buf b = {.arena = a};
    for (int t = 0; t < NTYPES; t++)
        if (store)
            buf_printf(&b, "    case %d: ((%s *)p)[i] = %s; break;\n", t, type_info[t].c, stored_as(a, (Type)t, "x"));
        else
            buf_printf(&b, "    case %d: return (double)%s;\n", t, formed(a, type_info[t].load, arena_printf(a, "((const %s *)p)[i]", type_info[t].c)));
    return buf_text(&b);
}

/* The stages of all rules as C, and for each rule the table of its functions. */
static bool fill_stages(Pack *p, Buf *out, const Hole *common, int ncommon)
{
    Arena *a = &p->arena;
    Buf code = {.arena = a}, tables = {.arena = a}, shared = {.arena = a};
    bool ok = true;
    for (int i = 0; i < p->nrule && ok; i++) {
        EmitOptions o = {.target = "c", .prefix = arena_printf(a, "%s_", p->rule[i].id)};
        buf_printf(&code, "/* ---- the stages of %s ---- */\n", p->rule[i].id);
        buf_printf(&tables, "static const optc_stage_fn table_cpu_%s[] = { ", p->rule[i].id);
        ok = emit_c_stages(p->rule[i].gen, &o, a, &code, &tables);
        buf_puts(&tables, " };\n");
    }
    /* Values of every type are read and written by the runtime: their conversions are always there. */
    buf_puts(&code, "/* optc_from_ optc_to_ */\n");
    emit_c_shared(&shared, buf_text(&code));
    Hole h[24] = {{"abi", template_text("abi.h")}, {"math", buf_text(&shared)}, {"stages", buf_text(&code)}, {"tables", buf_text(&tables)}};
    memcpy(h + 4, common, sizeof *h * (size_t)ncommon);
    return ok && template_fill(out, "package_core.txt", "stages", h, 4 + ncommon);
}

static void put_words(Buf *b, const char *data, size_t n)
{
    const unsigned char *s = (const unsigned char *)data;
    char line[40];
    for (size_t at = 0; at < n; at += 8) {
        unsigned long long w = 0;
        for (size_t i = 8; i-- > 0;)
            w = w << 8 | (at + i < n ? s[at + i] : 0u);
        int len = snprintf(line, sizeof line, "0x%llx,%s", w, at / 8 % 8 == 7 || at + 8 >= n ? "\n" : "");
        buf_add(b, line, (size_t)len);
    }
}

static bool fill_tables(Pack *p, Buf *out)
{
    Arena *a = &p->arena;
    Buf types = {.arena = a}, rules = {.arena = a}, launches = {.arena = a};
    char sum[17];
    buf_puts(&types, "static const char *const type_name[] = {");
    for (int t = 0; t < NTYPES; t++)
        buf_printf(&types, "%s\"%s\"", t ? ", " : "", type_info[t].name);
    buf_puts(&types, "};\nstatic const int type_bytes[] = {");
    for (int t = 0; t < NTYPES; t++)
        buf_printf(&types, "%s%d", t ? ", " : "", type_info[t].bytes);
    buf_puts(&types, "};\n");
    put_rules(p, &rules);
    put_launches(p, &launches);
    snprintf(sum, sizeof sum, "%llx", (unsigned long long)hash64(1, p->fatbin, p->fatbin_size));
    Hole h[] = {{"types", buf_text(&types)}, {"rules", buf_text(&rules)}, {"launches", buf_text(&launches)}, {"cuda", arena_printf(&p->arena, "%d", p->cuda)}, {"bytes", arena_printf(&p->arena, "%zu", p->fatbin_size)}, {"sum", sum}};
    return template_fill(out, "package_files.txt", "tables", h, 6);
}

static bool fill_source(Pack *p, Buf *out, const Hole *common, int n)
{
    Hole h[24] = {{"counts", arena_printf(&p->arena, "%s%s", template_text("domains.h"), template_text("counts.h"))}, {"hash", template_text("hash.h")}, {"float_mode", template_text("float_mode.h")}, {"driver", template_text("driver.h")}, {"shots", template_text("shots.h")},
                  {"loads", type_cases(&p->arena, false)}, {"stores", type_cases(&p->arena, true)}};
    memcpy(h + 7, common, sizeof *h * (size_t)n);
    Buf words = {.arena = &p->arena};
    put_words(&words, p->fatbin, p->fatbin_size);
    Hole fatbin[] = {{"words", buf_text(&words)}, {"p", p->name}};
    return fill_stages(p, out, common, n) && template_fill(out, "package_core.txt", "core", h, 7 + n) && fill_tables(p, out) && template_fill(out, "package_gpu.txt", "gpu", h, 7 + n) &&
              template_fill(out, "package_bind.txt", "bind", h, 7 + n) && template_fill(out, "package_step.txt", "step", h, 7 + n) && template_fill(out, "package_files.txt", "fatbin", fatbin, 2);
}

/* The example steps the first rule; 16-bit values go through the package's own conversions, which it has a copy of. */
static bool fill_example(Pack *p, Buf *out, const Hole *common, int n)
{
    const Plan *pl = p->rule[0].gen->plan;
    const Rule *r = pl->rule;
    bool small = type_info[pl->p].compute != pl->p || type_info[pl->g].compute != pl->g;
    Buf inputs = {.arena = &p->arena};
    for (int i = 0; i < r->ninput; i++)
        if (r->input[i].dom == GROUP)
            buf_printf(&inputs, "    check(%s_set_scalar(b, -1, \"%s\", 1));\n", p->name, r->input[i].name);
        else
            buf_printf(&inputs, "    for (int k = 0; k < 2; k++)\n        check(%s_set_input(b, k, \"%s\", room(gpu, (size_t)count[k] * sizeof(double)), 0));\n", p->name, r->input[i].name);
    const char *text = small ? arena_printf(&p->arena, "#define OPTC_FN static inline __attribute__((unused))\n%s%s\n", template_text("math.h"), template_text("types.h")) : "";
    Hole h[24] = {{"rule", p->rule[0].id}, {"small", text}, {"ctype", type_info[pl->p].c}, {"type", type_info[pl->p].name}, {"load", formed(&p->arena, type_info[pl->p].load, "x")},
                  {"store", stored_as(&p->arena, pl->p, "x")}, {"gtype", type_info[pl->g].c}, {"gstore", stored_as(&p->arena, pl->g, "x")}, {"inputs", buf_text(&inputs)}};
    memcpy(h + 9, common, sizeof *h * (size_t)n);
    return template_fill(out, "package_files.txt", "example", h, 9 + n);
}

static bool fill(Pack *p, PackFile f, Buf *out)
{
    Buf types = {.arena = &p->arena};
    const char *P = upper(&p->arena, p->name);
    for (int t = 0; t < NTYPES; t++)
        buf_printf(&types, ", %s_%s", P, upper(&p->arena, type_info[t].name));
    Hole common[] = {{"p", p->name}, {"P", P}, {"version", p->version}, {"command", emit_plain(&p->arena, p->command)}, {"rules", rule_list(p)}, {"first", p->rule[0].id}, {"types", buf_text(&types)}};
    int n = sizeof common / sizeof *common;
    return f == PACK_HEADER ? template_fill(out, "package_header.txt", "header", common, n) : f == PACK_SOURCE ? fill_source(p, out, common, n) : f == PACK_EXAMPLE ? fill_example(p, out, common, n)
            : template_fill(out, "package_files.txt", f == PACK_MAKEFILE ? "makefile" : "cmake", common, n);
}

static bool fill_cuda(Pack *p, int arch, Buf *out)
{
    Buf code = {.arena = &p->arena};
    bool ok = template_fill(&code, "stage_cuda.txt", "tick", NULL, 0);
    for (int i = 0; i < p->nrule && ok; i++) {
        EmitOptions o = {.target = "cuda", .prefix = arena_printf(&p->arena, "%s_", p->rule[i].id), .launch = p->arch[arch].launch[i]};
        ok = emit_cuda_stages(p->rule[i].gen, &o, &p->arena, &code);
    }
    return ok && emit_cuda_file(out, &p->arena, p->name, " * a package of optc", p->command, p->name, buf_text(&code));
}

/* Memory that runs out ends here. */
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

void pack_manifest_rules(Pack *p, Buf *b)
{
    for (int i = 0; i < p->nrule; i++) {
        const Gen *g = p->rule[i].gen;
        buf_printf(b, "rule %s\n  spec %s %s\n  with %s\n  options ", p->rule[i].id, g->rule->name, p->rule[i].spec, *g->rule->with ? g->rule->with : "-");
        for (int k = 0; k < g->rule->noption; k++)
            buf_printf(b, "%s%s=%s", k ? "," : "", g->rule->option[k].name, g->rule->option[k].value);
        buf_printf(b, "%s\n  types %s %s %s\n  key %s\n  prefix %s_\n", g->rule->noption ? "" : "-", type_info[g->plan->p].name, type_info[g->plan->g].name, type_info[g->plan->state].name,
                   p->rule[i].key, p->rule[i].id);
        for (int a = 0; a < p->narch; a++) {
            buf_printf(b, "  launch %s_%d", p->arch[a].ptx ? "compute" : "sm", p->arch[a].arch);
            each_stage(p, i, launch_line, &(ManifestRow){b, p->arch[a].launch[i]});
            buf_puts(b, "\n");
        }
    }
}
