/* Files of CUDA kernels: the stages of rules, the kernels of calls, and the hash that identifies a
 * stage. */
#include "gen/abi/methods.h"
#include "gen/emit/emit.h"
#include "gen/emit/prelude.h"

#include <string.h>

/* Hashes the stage's code with launch_plain and a fixed name. Equal stages of different rules share
 * tuned results, and results stay valid when the launch model changes. */
static void hash_stage(const Plan *p, int fn, Arena *a, char hex[33])
{
    StageAt at = plan_at(p, fn);
    Launch l = launch_plain(at.stage);
    Buf b = {.arena = a};
    /* the hash must not depend on other stages of the plan */
    Stage alone = *at.stage;
    alone.shared = false;
    at.stage = &alone;
    emit_cuda_kernel(&b, a, p, at, (CudaKernel){&l, NULL, "stage", false, false});
    if (is_tiled(at.stage->kind))
        buf_printf(&b, "%d x %d", at.stage->kind == S_TILE ? OPTC_TILE_ROWS : OPTC_BAND_ROWS,
                   at.stage->kind == S_TILE ? OPTC_TILE_COLS : OPTC_BAND_COLS);
    /* without comments, spaces and newlines */
    char *code = arena_strdup(a, buf_text(&b)), *to = code;
    for (const char *s = buf_text(&b); *s; s++) {
        const char *end = !strncmp(s, "/*", 2) ? strstr(s, "*/") : NULL;
        if (end)
            s = end + 1;
        else if (*s != ' ' && *s != '\n')
            *to++ = *s;
    }
    hash_hex(hash128(code, (size_t)(to - code)), hex);
}

bool emit_cuda_stage_hash(const Gen *g, int fn, char hex[33])
{
    jmp_buf out;
    Arena scratch = {.out = &out};
    LocaleMark was = locale_plain();            /* numbers are printed in the C locale */
    volatile bool ok = false;
    hex[0] = 0;
    if (!setjmp(out)) {
        hash_stage(g->plan, fn, &scratch, hex);
        ok = true;
    }
    locale_back(was);
    arena_free(&scratch);
    return ok;
}

/* Replaces each emit_line_mark by a #line directive for the emitted file. */
static void number_lines(Buf *out, const char *text, const char *name)
{
    int line = 1;
    for (const char *s = text, *end; *s; s = end, line++) {
        end = s + strcspn(s, "\n");
        end += *end == '\n';
        if (!strncmp(s, emit_line_mark, strlen(emit_line_mark)))
            buf_printf(out, "#line %d \"%s.cu\"\n", line + 1, name);
        else
            buf_add(out, s, (size_t)(end - s));
    }
}

typedef struct { Buf *out; const Plan *plan; StageAt at; CudaKernel kernel; bool ok; } OneKernel;

static void one_kernel(void *ctx, Arena *scratch)
{
    OneKernel *x = ctx;
    x->ok = emit_cuda_kernel(x->out, scratch, x->plan, x->at, x->kernel);
}

bool emit_cuda_stages(const Gen *g, const EmitOptions *o, Arena *a, Buf *code)
{
    const Plan *p = g->plan;
    bool ok = true;
    emit_array_numbers(code, p, o);
    for (int f = 0; f < p->nfn; f++) {
        StageAt at = plan_at(p, f);
        if (!emit_selects(p, o, f))
            continue;
        Launch l = o->launch ? o->launch[f] : launch_model(p, at.stage, 0);
        const char *fn = emit_prefixed(a, o->prefix, p, at.entry->name, at.phase, at.stage);
        OneKernel x = {code, p, at, {&l, o->prefix, fn, o->cite, o->runs}, false};
        arena_scratch(a, one_kernel, &x);
        ok = ok && x.ok;
    }
    return ok;
}

bool emit_cuda_file(Buf *out, Arena *a, const char *title, const char *about, const char *command,
                    const char *name, const char *code)
{
    Buf shared = {.arena = a};
    char hex[33];
    prelude_put(&shared, a, target_cuda.prelude, target_cuda.name, code);
    hash_hex(hash128(code, strlen(code)), hex);
    Hole h[] = {{"title", emit_comment_text(a, title)},
                {"about", about},
                {"command", emit_comment_text(a, command)},
                {"hash", hex},
                {"name", name},
                {"math", buf_text(&shared)},
                {"stages", code}};
    Buf text = {.arena = a};
    if (!template_fill(&text, target_cuda.templates, "file", h, sizeof h / sizeof *h))
        return false;
    emit_wrap(out, buf_text(&text));
    return true;
}

/* Kernels around the stages of a step. */
static const char step_file[] = "step_cuda.txt";

static const struct { const char *file, *name; KernelSection after; } sections[NSECTION] = {
#define SECTION(ID, file, name, after) {file, name, SECTION_##after},
#include "gen/abi/kernels.def"
};
#define SECTION(ID, file, name, after) \
    _Static_assert(SECTION_##after <= SECTION_##ID, \
                   "a section comes before the section that it uses");
#include "gen/abi/kernels.def"

/* The functions of eigenvalues of callees.def, of y and x.beta; x.k selects one
 * (spectral_number). */
static const char *spectral_values(Arena *a)
{
    const char *text = "";
#define X y
#define E x.beta
#define AS_TEXT(values) #values
#define CALLEE(ID, name, arity, form, bound, kind, flags, traits, values, ...) \
    if (callee_spectral(CALL_##ID)) \
        text = *text ? arena_printf(a, "(x.k == %d ? %s : %s)", spectral_number(CALL_##ID), \
                                    AS_TEXT(values), text) \
                     : AS_TEXT(values);
#include "gen/abi/callees.def"
#undef X
#undef E
    return text;
}

static bool put_section(Buf *b, KernelSection s)
{
    const bool eigen = s == SECTION_EIGEN;
    return template_fill(b, sections[s].file, sections[s].name,
                         &(Hole){"values", eigen ? spectral_values(b->arena) : NULL}, eigen);
}

/* Adds the sections that needed ones use. One walk from the last section to the first finds all,
 * because a section uses only earlier ones. */
static void close_sections(bool need[NSECTION])
{
    for (int s = NSECTION - 1; s >= 0; s--)
        need[sections[s].after] = need[sections[s].after] || need[s];
}

bool emit_cuda_calls(Buf *b, const Plan *const *p, int n)
{
    bool need[NSECTION] = {false}, ok = true;
    for (int i = 0; i < n; i++) {
        CallNeeds x = plan_needs(p[i]);
        for (int k = 0; k < NCALLKERNEL; k++)
            if (k != KERNEL_PHASE && call_kernel_name((CallKernel)k, x))
                need[kernel_info[k].section[!kernel_of_products((CallKernel)k, x) && x.f64]] = true;
    }
    close_sections(need);
    for (int s = 0; s < NSECTION && ok; s++)
        ok = !need[s] || put_section(b, (KernelSection)s);
    return ok;
}

bool emit_cuda_common(Buf *b, const Plan *const *p, int n)
{
    bool exchanges = false;
    for (int i = 0; i < n; i++)
        exchanges = exchanges || plan_exchanges(p[i]);
    return template_fill(b, step_file, "advance_t", NULL, 0) &&
           (!exchanges || template_fill(b, step_file, "shards", NULL, 0));
}

bool emit_cuda(const Gen *g, const EmitOptions *o, Arena *a, Buf *out)
{
    Buf code = {.arena = a}, text = {.arena = a}, *whole = o->cite ? &text : out;
    const Plan *const plan[] = {g->plan};
    bool all = !o->only && !o->select;
    bool ok = (!all || (emit_cuda_common(&code, plan, 1) && emit_cuda_calls(&code, plan, 1))) &&
              emit_cuda_stages(g, o, a, &code) &&
              emit_cuda_file(whole, a, emit_title(a, g->rule), emit_about(a, g), o->command,
                             g->rule->name, buf_text(&code));
    if (o->cite)
        number_lines(out, buf_text(&text), g->rule->name);
    return ok;
}

/* ---- programs that all rules share ---- */
static const char kernel_start[] = "extern \"C\" __global__ ";

/* The length of a kernel's definition: one line, or up to the first line that is only a closing
 * brace. */
static size_t kernel_length(const char *s)
{
    const char *line = s + strcspn(s, "\n"),
               *end = line > s && line[-1] == '}' ? line : strstr(s, "\n}\n");
    return end == line ? (size_t)(line - s) : end ? (size_t)(end + 2 - s) : strlen(s);
}

static bool name_is(const char *name, const char *s, size_t n)
{
    return strlen(name) == n && !strncmp(name, s, n);
}

/* Whether the kernel whose definition begins at s is one of the program's. */
static bool kernel_chosen(const char *s, int program, bool f64)
{
    const char *end = s + strcspn(s, "{"), *open = strstr(s, " optc_");
    size_t n = open && open < end ? strcspn(++open, "(") : 0;
    bool shards = n && (name_is("optc_move", open, n) || name_is("optc_agree", open, n));
    if (program < FIXED_CALLS)
        return shards == (program == FIXED_SHARDS);
    for (int k = 0; k < NCALLKERNEL && n; k++)
        if ((int)kernel_info[k].program == program - FIXED_CALLS &&
            name_is(kernel_info[k].name[f64 && kernel_info[k].name[1]], open, n))
            return true;
    return false;
}

/* The sections that the program's kernels need. */
static bool fixed_sections(Buf *b, int program, bool f64)
{
    bool need[NSECTION] = {false}, ok = true;
    if (program < FIXED_CALLS)
        return template_fill(b, step_file, "advance_t", NULL, 0) &&
               (program == FIXED_STEP || template_fill(b, step_file, "shards", NULL, 0));
    for (int k = 0; k < NCALLKERNEL; k++)
        if ((int)kernel_info[k].program == program - FIXED_CALLS)
            need[kernel_info[k].section[f64 && kernel_info[k].name[1]]] = true;
    close_sections(need);
    for (int s = 0; s < NSECTION && ok; s++)
        ok = !need[s] || put_section(b, (KernelSection)s);
    return ok;
}

char *emit_cuda_fixed(int program, bool f64)
{
    jmp_buf out;
    Arena scratch = {.out = &out};
    char *volatile text = NULL;
    if (!setjmp(out)) {
        Buf all = {.arena = &scratch}, code = {.arena = &scratch}, b = {.arena = &scratch};
        bool ok = fixed_sections(&all, program, f64);
        /* without other kernels */
        for (const char *s = buf_text(&all), *end; ok && *s; s = end) {
            bool kernel = !strncmp(s, kernel_start, sizeof kernel_start - 1);
            end = s + (kernel ? kernel_length(s) : strcspn(s, "\n"));
            end += *end == '\n';
            if (!kernel || kernel_chosen(s, program, f64))
                buf_add(&code, s, (size_t)(end - s));
        }
        if (ok && emit_cuda_file(&b, &scratch, "Kernels that all rules share.",
                                 " * runtime/core launches these.", "liboptc", "no rule",
                                 buf_text(&code)))
            text = buf_take(&b);
    }
    arena_free(&scratch);
    return text;
}

bool emit_cuda_matrices(Buf *b, const char *section)
{
    const char *file = arena_printf(b->arena, "%s_cuda.txt", section);
    bool ok = template_fill(b, file, section, NULL, 0);
    for (int t = 0; t < NTYPES && ok; t++) {
        Hole h[NTYPEHOLE];
        type_holes((Type)t, h);
        if (type_number((Type)t))
            ok = template_fill(b, file, arena_printf(b->arena, "%s_type", section), h, NTYPEHOLE);
    }
    return ok;
}

char *emit_cuda_alone(const char *section)
{
    jmp_buf out;
    Arena scratch = {.out = &out};
    char *volatile text = NULL;
    if (!setjmp(out)) {
        Buf code = {.arena = &scratch}, b = {.arena = &scratch};
        if (emit_cuda_matrices(&code, section) &&
            emit_cuda_file(&b, &scratch, "Matrices with no rule.",
                           " * runtime/core/functions launches this.", "liboptc", "no rule",
                           buf_text(&code)))
            text = buf_take(&b);
    }
    arena_free(&scratch);
    return text;
}
