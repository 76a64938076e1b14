/* Programs of a rule's kernels: how the kernels are divided, compiled by NVRTC in parallel, and loaded again. */
#include "runtime/library/rule/gpu_modules.h"

#include "gen/gen.h"
#include "runtime/core/matrix/cuda_library.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool modules_conditions(const optc_rule *r)
{
    return r->engine->gpu->d->version >= CONDITIONS_NEEDED && call_conditions(r->program);
}

typedef struct Part {
    const Nvrtc *n;
    char *source, *cubin, *log;
    const char *name;
    size_t size;
    int arch;
    pthread_t thread;
    bool started;
} Part;

static void *build_part(void *arg)
{
    Part *p = arg;
    p->cubin = nvrtc_build(p->n, p->source, p->name, p->arch, false, &p->size, &p->log);
    return NULL;
}

static char *join_parts(const Part *p, int n, size_t *size)
{
    *size = 0;
    for (int i = 0; i < n; i++)
        *size += sizeof(uint64_t) + ((p[i].size + 7) & ~(size_t)7);
    char *all = calloc(1, *size + 1), *at = all;
    for (int i = 0; all && i < n; i++) {
        uint64_t len = p[i].size;
        memcpy(at, &len, sizeof len);
        memcpy(at + sizeof len, p[i].cubin, p[i].size);
        at += sizeof len + ((p[i].size + 7) & ~(size_t)7);
    }
    return all;
}

static EmitOptions part_options(const optc_rule *r, const BuiltKernels *c, int part)
{
    return (EmitOptions){
        .command = "", .launch = c->code.launch, .nparts = c->nparts, .cite = true, .conditions = modules_conditions(r),
        .runs = c->runs, .part = part < c->nparts ? part : PART_CALLS};
}

/* Bindings open cuBLAS. It stays loaded, and loading takes as long as some programs: here other threads compile. */
static void open_cublas(const optc_rule *r)
{
    Cublas blas;
    char why[400];
    (void)cublas_open(&blas, r->engine->gpu->d->version, NULL, why, sizeof why);
}

char *modules_compile(const optc_rule *r, const BuiltKernels *c, const Nvrtc *n, unsigned need, size_t *size,
                      char **why)
{
    Part part[MOST_MODULES] = {{0}};
    int count = 0;
    bool ok = true;
    for (int i = 0; i < c->nmodule && ok; i++) {
        if (!(need >> i & 1))
            continue;
        EmitOptions o = part_options(r, c, i);
        Part *p = &part[count++];
        *p = (Part){.n = n,
                    .source = gen_emit(&r->library->gen, &o, NULL),
                    .name = r->library->rule->name,
                    .arch = r->engine->gpu->arch};
        bool last = !(need >> i >> 1);
        ok = p->source != NULL;
        p->started = ok && !last && pthread_create(&p->thread, NULL, build_part, p) == 0;
        if (ok && i == c->nparts)
            open_cublas(r);
        if (ok && !p->started)
            build_part(p);                                  /* the last part, or no thread could be started */
    }
    *why = NULL;
    for (int i = 0; i < count; i++) {
        if (part[i].started)
            pthread_join(part[i].thread, NULL);
        ok = ok && part[i].cubin;
        if (part[i].log && !*why) {
            *why = part[i].log;
            part[i].log = NULL;
        }
    }
    char *all = ok ? join_parts(part, count, size) : NULL;
    for (int i = 0; i < count; i++) {
        free(part[i].source);
        free(part[i].cubin);
        free(part[i].log);
    }
    return all;
}

char *modules_compile_one(const optc_rule *r, const Nvrtc *n, const EmitOptions *o, size_t *size, char **why)
{
    Part p = {.n = n,
              .source = gen_emit(&r->library->gen, o, NULL),
              .name = r->library->rule->name,
              .arch = r->engine->gpu->arch};
    if (p.source)
        build_part(&p);
    char *all = p.cubin ? join_parts(&p, 1, size) : NULL;
    *why = p.log;
    free(p.cubin);
    free(p.source);
    return all;
}

unsigned modules_divide(const optc_rule *r, BuiltKernels *c)
{
    int count = emit_parts(r->library->plan), cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    count = count > cores ? cores : count;
    c->nparts = count > MOST_PARTS ? MOST_PARTS : count < 1 ? 1 : count;
    c->nmodule = c->nparts + (program_calls(r->program) ? 1 : 0);
    return (1u << c->nmodule) - 1;
}

bool modules_load_next(const GpuEngine *g, const char *all, size_t size, size_t *at, CUmodule *out, int *rc)
{
    uint64_t len;
    *rc = 0;
    if (size < sizeof len || *at >= size - sizeof len)
        return false;
    memcpy(&len, all + *at, sizeof len);
    if (len > size - *at - sizeof len)
        return false;
    *rc = g->d->cuModuleLoadData(out, all + *at + sizeof len);
    *at += sizeof len + ((len + 7) & ~(uint64_t)7);
    return !*rc;
}
