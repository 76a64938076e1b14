/* CUDA as text: files of kernels, in parts that compilers take side by side, and what a stage is known by. */
#include "gen/emit/emit.h"
#include "gen/emit/prelude.h"

#include <string.h>

int emit_cuda_parts(const Plan *p)
{
    int n = 0;
    for (int f = 0; f < p->nfn; f++) {
        StageAt at = plan_at(p, f);
        n += at.stage && is_elem(at.stage->kind);
    }
    return n ? n : 1;
}

/* The stage's code in its plainest form, under no name: equal stages of different rules share what was measured, and a
 * better model does not forget it. */
static void hash_stage(const Plan *p, int fn, Arena *a, char hex[33])
{
    StageAt at = plan_at(p, fn);
    Launch l = launch_plain(at.stage);
    Buf b = {.arena = a};
    Stage alone = *at.stage;                    /* whoever else is it */
    alone.shared = false;
    at.stage = &alone;
    emit_cuda_kernel(&b, a, p, at, (CudaKernel){&l, NULL, "stage", false});
    if (is_tiled(at.stage->kind))
        buf_printf(&b, "%d x %d", at.stage->kind == S_TILE ? OPTC_TILE_ROWS : OPTC_BAND_ROWS,
                   at.stage->kind == S_TILE ? OPTC_TILE_COLS : OPTC_BAND_COLS);
    char *code = arena_strdup(a, buf_text(&b)), *to = code;          /* comments and blanks are no code */
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
    LocaleMark was = locale_plain();            /* numbers are printed as C has them, whatever the program's language */
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

/* After a body the compiler is told where it is again. */
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

int emit_cuda_part_of(const Plan *p, int fn, int nparts)
{
    bool pass = is_elem(plan_at(p, fn).stage->kind);
    int before = 0; /* passes over the elements take longest to compile: they and the others are dealt out in turn */
    for (int f = 0; f < fn; f++) {
        StageAt at = plan_at(p, f);
        before += at.stage && is_elem(at.stage->kind) == pass;
    }
    return before % (nparts > 0 ? nparts : 1);
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
        OneKernel x = {code, p, at, {&l, o->prefix, fn, o->cite}, false};
        arena_scratch(a, one_kernel, &x);
        ok = ok && x.ok;
    }
    return ok;
}

bool emit_cuda_file(Buf *out, Arena *a, const char *title, const char *about, const char *command, const char *name,
                    const char *code)
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
    return template_fill(out, target_cuda.templates, "file", h, sizeof h / sizeof *h);
}

/* The product of our own that a rule's calls may need, by its row of products.def. */
static const char *product_of(const Plan *p)
{
    return p->precision == PRODUCT_TF32 && p->product == T_F32 ? "tf32" : type_info[p->product].name;
}

/* Sections of products_cuda.txt, roots_, eigen_ and factors_cuda.txt that a plan's calls need, beside what all do. */
static int needed(const Plan *p, Arena *a, const char **out)
{
    int n = 0;
    if (!plan_calls(p))
        return 0;
    out[n++] = arena_printf(a, "mm_%s", product_of(p));
    bool root = plan_powers(p) & BY_PRODUCTS, eigen = plan_powers(p) & BY_EIGENVECTORS || plan_has(p, OP_EIGH);
    bool factor = plan_has(p, OP_CHOL) || plan_has(p, OP_QR) || plan_has(p, OP_SOLVE);
    Type in = type_info[p->product].bytes > type_info[p->real].bytes ? p->product : p->real;
    const char *kept = type_info[in].name;                     /* what their matrices are kept in */
    if (root || factor || eigen) {
        out[n++] = "mm_f64";
        out[n++] = "of_all";
    }
    if (root) {
        out[n++] = "roots";
        out[n++] = arena_printf(a, "roots_%s", kept);
        if (in == T_F32)                                  /* roots by products in f32 */
            out[n++] = "mm_f32";
    }
    if (factor) {
        out[n++] = "factors";
        out[n++] = arena_printf(a, "factors_%s", kept);
    }
    if (eigen) {
        out[n++] = "eigen";
        out[n++] = arena_printf(a, "eigen_%s", kept);
    }
    if (plan_has(p, OP_SORT) || plan_has(p, OP_TAKE)) {
        out[n++] = "moves";
        out[n++] = arena_printf(a, "moves_%s", kept);
    }
    return n;
}

static bool put_section(Buf *b, const char *name)
{
    bool root = !strncmp(name, "roots", 5) || !strcmp(name, "of_all");
    bool factor = !strncmp(name, "factors", 7) || !strncmp(name, "moves", 5);
    bool eigen = !strncmp(name, "eigen", 5);
    return template_fill(b, root ? "roots_cuda.txt" : eigen ? "eigen_cuda.txt" : factor ? "factors_cuda.txt" : "products_cuda.txt", name, NULL, 0);
}

bool emit_cuda_calls(Buf *b, const Plan *const *p, int n)
{
    enum { MOST = 12 };
    const char **done = NEWS(b->arena, const char *, n * MOST + 2), *all[] = {"calls", "mm"};
    int ndone = 0;
    bool ok = true;
    for (int i = 0; i < n; i++) {
        const char *want[MOST + 2];
        int nwant = needed(p[i], b->arena, want);
        for (int k = ndone || !nwant ? 0 : -2; k < nwant; k++) {
            const char *name = k < 0 ? all[k + 2] : want[k];
            bool there = false;
            for (int j = 0; j < ndone; j++)
                there = there || !strcmp(done[j], name);
            ok = there ? ok : put_section(b, name) && ok;
            if (!there)
                done[ndone++] = name;
        }
    }
    return ok;
}

bool emit_cuda(const Gen *g, const EmitOptions *o, Arena *a, Buf *out)
{
    Buf code = {.arena = a}, text = {.arena = a}, *whole = o->cite ? &text : out;
    bool first = o->part == 0 && !o->only;
    bool ok =
        (!first || template_fill(&code, target_cuda.templates, "advance_t", NULL, 0)) &&
        (!first || emit_cuda_calls(&code, (const Plan *const[]){g->plan}, 1)) &&
        (!first || !o->conditions || template_fill(&code, "products_cuda.txt", "phase", NULL, 0)) &&
        emit_cuda_stages(g, o, a, &code) &&
        emit_cuda_file(whole, a, emit_title(a, g->rule), emit_about(a, g), o->command, g->rule->name, buf_text(&code));
    if (o->cite)
        number_lines(out, buf_text(&text), g->rule->name);
    return ok;
}

char *emit_cuda_alone(const char *section)
{
    jmp_buf out;
    Arena scratch = {.out = &out};
    char *volatile text = NULL;
    if (!setjmp(out)) {
        Buf code = {.arena = &scratch}, b = {.arena = &scratch};
        bool ok = template_fill(&code, "kron_cuda.txt", section, NULL, 0);
        for (int t = 0; t < NTYPES && ok; t++) {
            Hole h[NTYPEHOLE];
            type_holes((Type)t, h);
            ok = template_fill(&code, "kron_cuda.txt", arena_printf(&scratch, "%s_type", section), h, NTYPEHOLE);
        }
        if (ok &&
            emit_cuda_file(&b, &scratch, "Matrices with no rule.", " * runtime/library/matrix/multiply_gpu.c launches this.", "liboptc",
                           "no rule", buf_text(&code)))
            text = buf_take(&b);
    }
    arena_free(&scratch);
    return text;
}
