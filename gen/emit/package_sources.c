/* The sources of the runtime in a package: which ones it contains, its public header, and the
 * renaming of public names. */
#include "gen/emit/package_sources.h"

#include "gen/emit/emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *pack_upper(Arena *a, const char *s)
{
    char *t = arena_strdup(a, s);
    for (char *c = t; *c; c++)
        *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    return t;
}

static bool has_products(const Pack *p)
{
    if (p->functions)
        return true;
    for (int i = 0; i < p->nrule; i++)
        if (plan_calls(p->rule[i].gen->plan))
            return true;
    return false;
}

const char *pack_source(const char *path)
{
    for (const Embedded *e = embedded_core; e->name; e++)
        if (!strcmp(e->name, path))
            return e->text;
    return NULL;
}

static bool begins_with(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

static bool ends_with(const char *s, size_t n, const char *with)
{
    return n > strlen(with) && !memcmp(s + n - strlen(with), with, strlen(with));
}

/* The path of a line's #include "…", of *len characters; NULL: it is no such line. */
static const char *quoted_include(const char *line, size_t *len)
{
    const char *path = begins_with(line, "#include \"") ? line + 10 : NULL;
    *len = path ? strcspn(path, "\"") : 0;
    return path;
}

/* Headers that are already in a package's header or before its stages. */
static bool emitted_elsewhere(const char *path)
{
    static const char *const headers[] = {"runtime/optc.h", "gen/abi/stage_abi.h",
                                          "gen/abi/reduction_sizes.h",
                                          "runtime/core/base/conversions.h"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        if (!strcmp(path, headers[i]))
            return true;
    return false;
}

static bool add_headers_of(Pack *p, PackSources *s, const char *text);

static bool add_header(Pack *p, PackSources *s, const char *path)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->path[i], path))
            return true;
    if (emitted_elsewhere(path))
        return true;
    if (!pack_source(path) || !add_headers_of(p, s, pack_source(path)))
        return false;
    PUSH(&p->arena, s->path, s->n, s->cap) = path;
    return true;
}

static bool add_headers_of(Pack *p, PackSources *s, const char *text)
{
    for (size_t len; *text; text += strcspn(text, "\n"), text += *text != 0) {
        const char *path = quoted_include(text, &len);
        if (path && !ends_with(path, len, ".def") &&
            !add_header(p, s, arena_strndup(&p->arena, path, len)))
            return false;
    }
    return true;
}

/* How a package's compiler optimizes a source (gcc; clang has no pragma for the level). LOOPS:
 * loops over elements or matrices, at the user's level. STEPS: code that runs once per step, tensor
 * or launch, at -O1: gcc takes three times as long at -O3. BINDS: code that runs once per engine,
 * rule, binding or checkpoint, at -O0, which takes half of -O1's time. Binding 5000 tensors then
 * takes 75 instead of 60 ms, and loading their checkpoint 80 instead of 56 ms. */
typedef enum { HEADERS, LOOPS, STEPS, BINDS, PASSES } SourcePass;

static bool is_one_of(const char *path, const char *const *names)
{
    for (; *names; names++)
        if (begins_with(path + strlen("runtime/core/"), *names))
            return true;
    return false;
}

static SourcePass source_pass(const char *path)
{
    static const char *const loops[] = {"base/type_values.c",       "cpu/cpu_device.c",
                                        "bind/state_start.c",       "cpu/thread_barrier.c",
                                        "matrix/cpu_calls.c",
                                        "matrix/cpu_factors.c",     "matrix/cpu_product.c",
                                        "matrix/gemm_fallback.c",   "functions/function_copy.c",
                                        "functions/multiply_cpu.c", "matrix/lapack.c",
                                        "matrix/lapack_fallback.c", "matrix/matrix_view.c",
                                        "matrix/sort_take.c",       NULL};
    static const char *const binds[] = {
        "api/bind.c",       "api/caller_states.c", "api/connect.c",    "api/engine_api.c",
        "api/introspect.c", "api/rule_api.c",      "api/run_all.c",    "api/shard_plan.c",
        "base/lifetime",    "checkpoint/",         "cuda/",            "matrix/cuda_library.c",
        "memory/layout.c",  "shard/shard_",        NULL};
    return is_one_of(path, loops) ? LOOPS : is_one_of(path, binds) ? BINDS : STEPS;
}

/* Sources that only a GPU needs: a third of the runtime. */
static bool is_for_gpu(const char *path)
{
    static const char *const gpu[] = {"cuda/",
                                      "gpu/",
                                      "matrix/gpu_",
                                      "matrix/cublas",
                                      "matrix/cuda_",
                                      "matrix/cusolver",
                                      "functions/multiply_gpu",
                                      NULL};
    return is_one_of(path, gpu);
}

/* Sources that only rules with calls need. */
static bool is_for_calls(const char *path)
{
    static const char *const calls[] = {"base/call_costs.c", "gpu/gpu_conditional.c",
                                        "gpu/gpu_probe.c", "gpu/gpu_slot_switch.c", "matrix/",
                                        NULL};
    return is_one_of(path, calls);
}

/* Lists the sources of runtime/core, from the list that the build embedded. Sources that only calls
 * need are left out of a package without calls, and stubs replace them. A package without GPU code
 * leaves out what only a GPU needs in the same way. false: an include names a file that is not
 * embedded. */
bool pack_sources(Pack *p, PackSources *s)
{
    static const char no_calls[] = "runtime/core/matrix/no_matrix_calls.h",
                      no_gpu[] = "runtime/core/gpu/no_gpu.h";
    bool products = has_products(p), gpu = p->narch > 0;
    *s = (PackSources){0};
    if (!add_header(p, s, "gen/abi/hash.h"))               /* package_host.txt calls it */
        return false;
    for (int pass = HEADERS; pass < PASSES; pass++) {
        for (const Embedded *e = embedded_core; e->name; e++) {
            if (!begins_with(e->name, "runtime/core/") ||
                !ends_with(e->name, strlen(e->name), ".c") ||
                (!p->functions && begins_with(e->name, "runtime/core/functions/")) ||
                (!products && is_for_calls(e->name)) ||
                (!gpu && is_for_gpu(e->name)))
                continue;
            if (pass == HEADERS && !add_headers_of(p, s, e->text))
                return false;
            if (pass != HEADERS && source_pass(e->name) == (SourcePass)pass)
                PUSH(&p->arena, s->path, s->n, s->cap) = e->name;
        }
        s->end[pass] = s->n;
    }
    if (!products)
        PUSH(&p->arena, s->path, s->n, s->cap) = no_calls;
    if (!gpu)
        PUSH(&p->arena, s->path, s->n, s->cap) = no_gpu;
    return true;
}

static size_t word_length(const char *s)
{
    size_t n = 0;
    while (s[n] == '_' || (s[n] >= '0' && s[n] <= '9') || (s[n] >= 'a' && s[n] <= 'z') ||
           (s[n] >= 'A' && s[n] <= 'Z'))
        n++;
    return n;
}

/* A public name: it occurs in the header, in code or in a comment (environment variables). */
static bool is_public(const char *header, const char *word, size_t n)
{
    if (n < 6 || (memcmp(word, "optc_", 5) && memcmp(word, "OPTC_", 5)))
        return false;
    for (const char *s = strstr(header, n && word[0] == 'o' ? "optc_" : "OPTC_"); s;
         s = strstr(s + 1, word[0] == 'o' ? "optc_" : "OPTC_"))
        if (word_length(s) == n && !memcmp(s, word, n))
            return true;
    return false;
}

/* Prints text with the public names of optc.h renamed to this package's prefix, in code, strings
 * and comments. */
void pack_rename(const Pack *p, Buf *b, const char *header, const char *s, size_t len)
{
    const char *const P = pack_upper((Arena *)&p->arena, p->name), *end = s + len;
    while (s < end) {
        size_t n = word_length(s);
        if (n && is_public(header, s, n)) {
            buf_puts(b, s[0] == 'o' ? p->name : P);
            buf_add(b, s + 4, n - 4);
        } else {
            buf_add(b, s, n ? n : 1);
        }
        s += n ? n : 1;
    }
}

static bool is_line(const char *s, size_t n, const char *line)
{
    return n == strlen(line) && !memcmp(s, line, n);
}

/* Adds a public header without the parts that only the library has, which are between lines
 * "library:" and ":library", and without the functions of matrices ("functions:") if the package
 * has none. Other public headers are added in place of their #include. */
static void add_public(Buf *b, const char *path, bool functions)
{
    bool library = false, function = false;
    char other[80];
    for (const char *s = pack_source(path); s && *s;) {
        size_t n = strcspn(s, "\n") + 1, len;
        const char *quote = quoted_include(s, &len);
        bool mark = true;
        if (is_line(s, n, "/* library: */\n") || is_line(s, n, "/* :library */\n"))
            library = s[3] == 'l';
        else if (is_line(s, n, "/* functions: */\n") || is_line(s, n, "/* :functions */\n"))
            function = s[3] == 'f';
        else
            mark = false;
        if (!mark && !library && (functions || !function)) {
            if (quote) {
                snprintf(other, sizeof other, "runtime/%.*s", (int)len, quote);
                add_public(b, other, functions);
            } else {
                buf_add(b, s, n);
            }
        }
        s += n;
    }
}

const char *pack_public_header(Pack *p)
{
    Buf b = {.arena = &p->arena};
    add_public(&b, "runtime/optc.h", p->functions != NULL);
    return buf_text(&b);
}

/* Pastes one source of the runtime. Includes of other sources are left out, because the package
 * contains them; an include of a table (.def) is replaced by the table, without its head comment:
 * the same table is included several times. */
static bool paste(Pack *p, Buf *b, const char *header, const char *path)
{
    const char *s = pack_source(path);
    if (!s)
        return false;
    buf_printf(b, "/* ==== %s ==== */\n", path);
    while (*s) {
        size_t n = strcspn(s, "\n");
        size_t len;
        const char *quote = quoted_include(s, &len);
        if (quote && ends_with(quote, len, ".def")) {
            const char *table = pack_source(arena_strndup(&p->arena, quote, len));
            if (!table)
                return false;
            buf_puts(b, strstr(table, "*/\n") + 3);
        } else if (!quote) {
            pack_rename(p, b, header, s, n);
            buf_puts(b, "\n");
        }
        s += n + (s[n] == '\n');
    }
    return true;
}

bool pack_paste(Pack *p, Buf *b, const char *header, const PackSources *s, int from, int to)
{
    bool ok = true;
    for (int i = from; i < to && ok; i++)
        ok = paste(p, b, header, s->path[i]);
    buf_puts(b, "/* ==== of this package ==== */\n");
    return ok;
}
