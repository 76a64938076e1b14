/* Compiles every rule of the library, every wrapper and some compositions for every architecture
 * that NVRTC supports, and checks the result: a cubin must contain the kernels that the runtime
 * requests, and no others. Kernels that use local memory are listed. Needs no GPU. Several
 * processes share the work.
 *    compile-all [PROCESSES [ARCHITECTURES]]   at most ARCHITECTURES, the newest ones.
 *                                              ARCHITECTURES "thin": each rule for one architecture
 *                                              in rotation, no rules with products, and every kind
 *                                              of call for one architecture
 * exit 0: all good, 1: something is wrong, 77: there is no NVRTC */
#include "runtime/library/compile/nvrtc.h"
#include "gen/emit/emit.h"
#include "runtime/library/rule/spec_find.h"
#include "optc.h"
#include "gen/emit/program_make.h"
#include "runtime/core/gpu/gpu_device.h"

#include <elf.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* In addition to each rule alone and each wrapper on sgd: nested wrappers, other storage types,
 * other options. */
static const struct { const char *spec, *with, *options; Type p, state;
} extra[] = {{"adamw", "clip(1),cautious,ema(0.999)", "", T_F32, T_F32},
             {"sgd", "centralize,lookahead(2,0.5)", "", T_F32, T_F32},
             {"adamw", "clip_norm(0.1)", "amsgrad=true", T_F32, T_F32},
             {"adamw", "clip(1)", "", T_BF16, T_F32},
             {"lamb", "", "", T_F16, T_F16},
             {"adamw", "sam(0.05)", "", T_F64, T_F64},
             {"rmsprop", "", "centered=true", T_F32, T_F32},
             {"adamw", "", "", T_E4M3, T_E5M2},
             {"came", "", "", T_BF16SR, T_F16SR}};

/* Every kind of call in few stages, for runs that skip rules with calls. */
static const char every_call[] = "return optimizer { name = 'every_call', products = 'bf16', state "
                                 "= { A = zeros 'rows', X = zeros 'rows', V = "
                                 "zeros 'rows', Q = zeros 'rows' },\n"
                                 "  matrix = function() A = A + gram(g)  X = power(A, -1/4, { "
                                 "relative = 1/32, last = X })  local w, U = eigh(A)  V "
                                 "= U + 0 * w.T  Q = qr(A, { last = Q })\n"
                                 "    p = p - take(solve(chol(A + X), g), sort(rowmax(g))) end,\n"
                                 "  step = function() p = p - g end }\n";

/* ---- what is compiled ---- */
/* fixed: a program that all rules share */
typedef struct Case {
    char label[96]; Gen gen; char *source; const char **kernel; int nkernel; bool fixed;
} Case;

static bool planned(const Case *k, const char *name)
{
    for (int i = 0; i < k->nkernel; i++)
        if (!strcmp(k->kernel[i], name))
            return true;
    return false;
}

/* Template sections are included whole: a requested kernel comes with others of its family,
 * optc_FAMILY_…, for other types or other calls of its kind. */
static bool beside(const Case *k, const char *name)
{
    static const struct { const char *family, *with;
    } of[] = {{"optc_mm_", "optc_mm_"},         {"optc_root_", "optc_root_"},
              {"optc_root32_", "optc_root32_"}, {"optc_factor_", "optc_factor_"},
              {"optc_eigen_", "optc_eigen_"},   {"optc_sort_", "optc_take_"},
              {"optc_take_", "optc_sort_"}};
    for (int f = 0; f < COUNT(of); f++)
        for (int i = 0; !strncmp(name, of[f].family, strlen(of[f].family)) && i < k->nkernel; i++)
            if (!strncmp(k->kernel[i], of[f].with, strlen(of[f].with)))
                return true;
    return false;
}

/* The kernels that the runtime requests: from its table of what calls need, and one per stage. */
static bool list_kernels(Case *c)
{
    const Plan *p = c->gen.plan;
    const Program *program = program_make(&c->gen.arena, p, NULL);
    c->kernel = calloc((size_t)p->nfn + NCALLKERNEL + 4, sizeof *c->kernel);
    if (!c->kernel)
        return false;
    c->kernel[c->nkernel++] = "optc_advance_t";
    c->kernel[c->nkernel++] = "optc_guard";
    if (plan_exchanges(p)) {
        c->kernel[c->nkernel++] = "optc_move";
        c->kernel[c->nkernel++] = "optc_agree";
    }
    for (int k = 0; k < NCALLKERNEL; k++) {
        const char *name = k == KERNEL_PHASE ? NULL : call_kernel(program, k);
        if (name && !planned(c, name))
            c->kernel[c->nkernel++] = name;
    }
    for (int f = 0; f < p->nfn; f++) {
        StageAt at = plan_at(p, f);
        c->kernel[c->nkernel++] =
            emit_prefixed(&c->gen.arena, "", p, at.entry->name, at.phase, at.stage);
    }
    return true;
}

static bool make_case(Case *c, const char *spec, const char *with, const char *options, Types t)
{
    GenOptions o = {
        .with = with, .options = options, .types = t, .find = find_wrapper, .target = &target_cuda};
    Source s;
    snprintf(c->label, sizeof c->label, "%s%s%s%s%s%s%s", spec == every_call ? "every_call" : spec,
             *with ? " --with " : "", with, *options ? " --options " : "", options,
             t.p == T_F32 ? "" : " in ", t.p == T_F32 ? "" : type_info[t.p].name);
    bool found = spec == every_call
                     ? (s = (Source){"every_call", every_call, strlen(every_call)}, true)
                     : find_spec(NULL, spec, &c->gen.arena, &s, &c->gen.diag);
    if (found && gen_compile(&c->gen, s, &o))
        c->source =
            gen_emit(&c->gen, &(EmitOptions){.target = &target_cuda, .command = "compile-all"},
                     &c->gen.diag);
    if (!c->source)
        fprintf(stderr, "%s: %s\n", c->label,
                c->gen.diag.text ? c->gen.diag.text : "out of memory");
    return c->source && list_kernels(c);
}

/* Kernels that belong to no rule: those of a template, one per storage type. */
static bool make_alone(Case *c, const char *name)
{
    static char names[2 * NTYPES][64];
    static int used;
    snprintf(c->label, sizeof c->label, "matrices with no rule: %s", name);
    c->source = emit_cuda_alone(name);
    c->kernel = calloc(NTYPES, sizeof *c->kernel);
    for (int t = 0; c->kernel && t < NTYPES; t++) {
        if (!type_number((Type)t))
            continue;
        snprintf(names[used], sizeof *names, "optc_%s_of_%s", name, type_info[t].name);
        c->kernel[c->nkernel++] = names[used++];
    }
    return c->source && c->kernel && c->nkernel;
}

/* A program that all rules share: exactly its kernels. */
static bool make_fixed(Case *c, int program, bool f64)
{
    static const char *const step[] = {"optc_advance_t", "optc_guard"}, *const shards[] = {
                                                                            "optc_move",
                                                                            "optc_agree"};
    snprintf(c->label, sizeof c->label, "shared program %d of %s", program, f64 ? "f64" : "f32");
    c->fixed = true;
    c->source = emit_cuda_fixed(program, f64);
    c->kernel = calloc(NCALLKERNEL + 2, sizeof *c->kernel);
    for (int i = 0; c->kernel && program < FIXED_CALLS && i < 2; i++)
        c->kernel[c->nkernel++] = program == FIXED_STEP ? step[i] : shards[i];
    for (int k = 0; c->kernel && k < NCALLKERNEL; k++)
        if ((int)kernel_info[k].program == program - FIXED_CALLS)
            c->kernel[c->nkernel++] = kernel_info[k].name[f64 && kernel_info[k].name[1]];
    return c->source && c->kernel && c->nkernel;
}

/* Long sources take longest: they come first, so that no process has one left at the end. */
static int longest_first(const void *a, const void *b)
{
    size_t x = strlen(((const Case *)a)->source), y = strlen(((const Case *)b)->source);
    return (x < y) - (x > y);
}

static int make_cases(Case *c)
{
    const Types f32 = {.p = T_F32, .g = T_F32, .state = T_F32};
    int n = 0;
    bool ok = true;
    for (int i = 0; i < optc_library_size(); i++) {
        const char *name = optc_library_name(i), *slash = strchr(name, '/');
        ok = make_case(&c[n++], slash ? "sgd" : name, slash ? slash + 1 : "", "", f32) && ok;
    }
    for (int i = 0; i < COUNT(extra); i++)
        ok = make_case(&c[n++], extra[i].spec, extra[i].with, extra[i].options,
                       (Types){.p = extra[i].p,
                               .g = (Type)plain_type((int)extra[i].p),
                               .state = extra[i].state}) &&
             ok;
    for (int m = MASTER_F32; m < NMASTER; m++)
        ok = make_case(&c[n++], "adamw", "", "",
                       (Types){.p = T_BF16, .g = T_BF16, .master = (Master)m, .copy = 1 + T_F16}) &&
             ok;
    ok = make_case(&c[n++], every_call, "", "", f32) && ok;
    for (int i = 0; i < 2 * NFIXED; i++)
        ok = make_fixed(&c[n++], i % NFIXED, i >= NFIXED) && ok;
    ok = make_alone(&c[n++], "kron") && ok;
    ok = make_alone(&c[n++], "copy") && ok;
    if (ok)
        qsort(c, (size_t)n, sizeof *c, longest_first);
    return ok ? n : -1;
}

/* ---- looking into a cubin ---- */
/* st_other of an entry; .nv.info: an item followed by bytes; (symbol, bytes of local memory) */
enum { KERNEL = 0x10, SIZED = 4, FRAME_SIZE = 0x11 };

typedef struct {
    const char *data;
    size_t size;
    const Elf64_Ehdr *head;
    const Elf64_Shdr *sec;
    const Elf64_Sym *sym;
    size_t nsym; const char *names;
} Cubin;

static bool inside(const Cubin *c, uint64_t at, uint64_t n)
{
    return at <= c->size && n <= c->size - at;
}

static const char *section_name(const Cubin *c, const Elf64_Shdr *s)
{
    return c->data + c->sec[c->head->e_shstrndx].sh_offset + s->sh_name;
}

static bool cubin_open(Cubin *c, const char *data, size_t size)
{
    *c = (Cubin){.data = data, .size = size, .head = (const Elf64_Ehdr *)(const void *)data};
    if (size < sizeof *c->head || memcmp(data, ELFMAG, SELFMAG) ||
        c->head->e_shentsize != sizeof *c->sec ||
        !inside(c, c->head->e_shoff, sizeof *c->sec * (uint64_t)c->head->e_shnum))
        return false;
    c->sec = (const Elf64_Shdr *)(const void *)(data + c->head->e_shoff);
    for (int i = 0; i < c->head->e_shnum; i++) {
        const Elf64_Shdr *s = &c->sec[i];
        if (s->sh_type != SHT_NOBITS && !inside(c, s->sh_offset, s->sh_size))
            return false;
        if (s->sh_type == SHT_SYMTAB && s->sh_link < c->head->e_shnum) {
            c->sym = (const Elf64_Sym *)(const void *)(data + s->sh_offset);
            c->nsym = s->sh_size / sizeof *c->sym;
            c->names = data + c->sec[s->sh_link].sh_offset;
        }
    }
    return c->sym && c->head->e_shstrndx < c->head->e_shnum;
}

static const char *kernel_name(const Cubin *c, size_t i)
{
    return i < c->nsym && ELF64_ST_TYPE(c->sym[i].st_info) == STT_FUNC &&
        (c->sym[i].st_other & KERNEL) ? c->names + c->sym[i].st_name : NULL;
}

static bool check_kernels(const Cubin *c, const Case *k, int arch, int *all)
{
    int found = 0;
    *all = 0;
    for (size_t i = 0; i < c->nsym; i++) {
        const char *name = kernel_name(c, i);
        if (name && !planned(k, name) && (k->fixed || !beside(k, name))) {
            fprintf(stderr, "%s, sm_%d: kernel %s is not in the plan\n", k->label, arch, name);
            return false;
        }
        *all += name != NULL;
        found += name && planned(k, name);
    }
    if (found != k->nkernel)
        fprintf(stderr, "%s, sm_%d: %d kernels of the plan's %d\n", k->label, arch, found,
                k->nkernel);
    return found == k->nkernel;
}

/* ---- kernels that keep values in local memory ---- */
typedef struct { const Case *c; char kernel[64]; unsigned least, most; int archs; } Spill;
typedef struct { Spill v[1024]; int n; pthread_mutex_t lock; } Spills;

static void note_spill(Spills *s, const Case *c, const char *kernel, unsigned bytes)
{
    pthread_mutex_lock(&s->lock);
    int i = 0;
    while (i < s->n && (s->v[i].c != c || strcmp(s->v[i].kernel, kernel)))
        i++;
    if (i == s->n && s->n < COUNT(s->v)) {
        s->v[s->n++] = (Spill){.c = c, .least = bytes};
        snprintf(s->v[i].kernel, sizeof s->v[i].kernel, "%s", kernel);
    }
    if (i < s->n) {
        Spill *v = &s->v[i];
        v->least = bytes < v->least ? bytes : v->least;
        v->most = bytes > v->most ? bytes : v->most;
        v->archs++;
    }
    pthread_mutex_unlock(&s->lock);
}

/* .nv.info is a sequence of items: form, attribute, size, and for SIZED that many bytes. */
static int check_frames(const Cubin *c, const Case *k, Spills *s)
{
    int seen = 0;
    for (int i = 0; i < c->head->e_shnum; i++) {
        if (strcmp(section_name(c, &c->sec[i]), ".nv.info"))
            continue;
        const unsigned char *at = (const unsigned char *)c->data + c->sec[i].sh_offset,
                            *end = at + c->sec[i].sh_size;
        while (end - at >= 4) {
            unsigned size = at[0] == SIZED ? (unsigned)at[2] | (unsigned)at[3] << 8 : 0, item[2];
            if (at[0] == SIZED && at[1] == FRAME_SIZE && size == sizeof item && end - at >= 12) {
                memcpy(item, at + 4, sizeof item);
                const char *name = kernel_name(c, item[0]);
                seen += name != NULL;
                if (name && item[1])
                    note_spill(s, k, name, item[1]);
            }
            at += 4 + (size <= (size_t)(end - at) - 4 ? size : (size_t)(end - at) - 4);
        }
    }
    return seen;
}

static int by_label(const void *a, const void *b)
{
    const Spill *x = a, *y = b;
    int d = strcmp(x->c->label, y->c->label);
    return d ? d : strcmp(x->kernel, y->kernel);
}

static void print_spills(Spills *s, int narch)
{
    qsort(s->v, (size_t)s->n, sizeof *s->v, by_label);
    printf(s->n ? "kernels with values in local memory (%d):\n"
                : "no kernel keeps values in local memory\n",
           s->n);
    for (int i = 0; i < s->n; i++) {
        const Spill *v = &s->v[i];
        printf("  %-44s %-28s %u", v->c->label, v->kernel, v->least);
        printf(v->most > v->least ? "-%u bytes a thread" : " bytes a thread", v->most);
        printf(v->archs < narch ? ", on %d of %d architectures\n" : "\n", v->archs, narch);
    }
}

/* ---- all of it ---- */
/* In memory that all processes share; c points to data of which each process has a copy. */
typedef struct {
    Case *c; int ncase, arch[64], narch; bool thin; atomic_int next, good; Spills spills;
} Work;

static bool compile_one(Work *w, const Nvrtc *n, const Case *c, int arch)
{
    size_t size = 0;
    char *log = NULL, *code = nvrtc_build(n, c->source, c->label, arch, false, &size, &log);
    Cubin cubin;
    int kernels = 0;
    bool ok = code && cubin_open(&cubin, code, size);
    if (!code)
        fprintf(stderr, "%s: NVRTC refuses it for sm_%d: %s\n", c->label, arch, log ? log : "");
    else if (!ok)
        fprintf(stderr, "%s: what NVRTC makes for sm_%d is no cubin\n", c->label, arch);
    if (ok)
        ok = check_kernels(&cubin, c, arch, &kernels);
    if (ok && check_frames(&cubin, c, &w->spills) != kernels) {
        fprintf(stderr, "%s, sm_%d: the cubin does not tell each kernel's local memory\n", c->label,
                arch);
        ok = false;
    }
    free(code);
    free(log);
    return ok;
}

/* Whether pair i is compiled. Thinned, the longest rules (one for each architecture) take one
 * architecture in rotation, and so does every eighth one of the others. Rules with products have
 * hundreds of kernels that are alike: thinned, one spec with every kind of call replaces them, for
 * the oldest architecture. A package of the whole library covers sm_90
 * (tests/parts/ship_library.sh). */
static bool chosen(const Work *w, int i)
{
    int rule = i / w->narch, a = i % w->narch;
    const Gen *g = &w->c[rule].gen;
    const char *name = g->rule ? g->rule->name : "";
    if (w->thin && w->c[rule].fixed)                /* the emulated GPU compiles these too */
        return rule % 16 == 0 && a == 0;
    if (w->thin && g->rule && plan_calls(g->plan))
        return !strcmp(name, "every_call") && a == 0;
    return !w->thin || (a == rule % w->narch && (rule < w->narch || rule % 8 == 1));
}

static void worker(Work *w)
{
    const Nvrtc *n = nvrtc_get(NULL);
    for (int i; (i = atomic_fetch_add(&w->next, 1)) < w->ncase * w->narch;)
        if (chosen(w, i) && compile_one(w, n, &w->c[i / w->narch], w->arch[i % w->narch]))
            atomic_fetch_add(&w->good, 1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A process that dies does not count its pair: `good` is then less than the total. */
static void run_processes(Work *w, int n)
{
    fflush(NULL);
    for (int i = 1; i < n; i++) {
        pid_t id = fork();
        if (id == 0) {
            worker(w);
            fflush(NULL);
            _exit(0);
        }
    }
    worker(w);
    while (wait(NULL) > 0)
        ;
}

static int newest_archs(const Nvrtc *n, int *out, int most)
{
    int all[64], count = nvrtc_archs(n, all, COUNT(all)), skip = count > most ? count - most : 0;
    memcpy(out, all + skip, sizeof *out * (size_t)(count - skip));
    return count - skip;
}

static Work *share_work(void)
{
    Work *w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t a;
    if (w == MAP_FAILED || pthread_mutexattr_init(&a) ||
        pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED) ||
        pthread_mutex_init(&w->spills.lock, &a))
        return NULL;
    w->c =
        calloc((size_t)optc_library_size() + COUNT(extra) + NMASTER + 2 * NFIXED + 5, sizeof *w->c);
    return w->c ? w : NULL;
}

int main(int argc, char **argv)
{
    const char *why;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int processes = argc > 1 ? atoi(argv[1]) : cores > 0 ? (int)cores : 1;
    const Nvrtc *n = nvrtc_get(&why);
    if (!n)
        return fprintf(stderr, "%s\n", why), 77;
    Work *w = share_work();
    int most = argc > 2 && atoi(argv[2]) > 0 ? atoi(argv[2]) : COUNT(w->arch);
    if (!w || !(w->narch = newest_archs(n, w->arch, most)) || (w->ncase = make_cases(w->c)) < 0)
        return fprintf(stderr, "compile-all: nothing could be compiled\n"), 1;
    w->thin = argc > 2 && !strcmp(argv[2], "thin");
    double t0 = now();
    run_processes(w, processes);
    int pairs = 0, good = atomic_load(&w->good);
    for (int i = 0; i < w->ncase * w->narch; i++)
        pairs += chosen(w, i);
    print_spills(&w->spills, w->narch);
    printf("%d rules for %d architectures, %d pairs: %d good (NVRTC %d.%d, %d process%s, %.0f s)\n",
           w->ncase, w->narch, pairs, good, n->version / 1000, n->version % 1000 / 10, processes,
           processes == 1 ? "" : "es", now() - t0);
    for (int i = 0; i < w->ncase; i++) {
        free(w->c[i].source);
        free(w->c[i].kernel);
        gen_free(&w->c[i].gen);
    }
    free(w->c);
    return good == pairs ? 0 : 1;
}
