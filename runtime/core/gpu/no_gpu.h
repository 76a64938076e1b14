/* Replaces the sources that only a GPU needs in packages without GPU code. gpu_open fails, so no
 * engine has a GPU: the rest of the core never calls the functions below the first five. */
CORE int gpu_count(void) { return 0; }
CORE int gpu_best(void) { return -1; }
CORE const Device *gpu_device(void) { return (const Device *)NULL; }
CORE void gpu_close(optc_engine *e) { (void)e; }
CORE optc_status gpu_open(optc_engine *e, int ordinal)
{
    (void)e, (void)ordinal;
    return fail(OPTC_ERROR_UNAVAILABLE,
                "optc_open: this package has no GPU code: it was made without --arch");
}

CORE const Driver *gpu_enter(const GpuEngine *g)
{
    static Driver none;
    return (void)g, &none;
}

CORE optc_status gpu_leave(const GpuEngine *g, optc_status s) { return (void)g, s; }
CORE optc_status gpu_alive(GpuEngine *g) { return (void)g, OPTC_OK; }
CORE optc_status refuse_half_done(const optc_binding *b, const char *call)
{
    return (void)b, (void)call, OPTC_OK;
}
CORE void spare_keep(GpuEngine *g, void *handle, SpareGone gone)
{
    (void)g, (void)handle, (void)gone;
}
CORE bool image_suits(Image x, Image best, int arch, bool compiles)
{
    return (void)x, (void)best, (void)arch, (void)compiles, false;
}

CORE optc_status gpu_error(GpuEngine *g, const char *call, int rc, const char *what)
{
    return (void)g, (void)rc,
           fail(OPTC_ERROR_UNAVAILABLE, "%s: %s: this package has no GPU code", call, what);
}

CORE optc_status gpu_owns_pointer(GpuEngine *g, const void *p, const char *what, bool *here)
{
    *here = false;
    return (void)g, (void)p, (void)what, OPTC_OK;
}

#ifndef NO_MATRIX_CALLS        /* no_matrix_calls.h has these too */
CORE void gpu_call_path(const optc_rule *r, char *buf, size_t n) { (void)r, (void)n, *buf = 0; }
CORE const char *call_kernel(const Program *p, int k)
{
    return (void)p, (void)k, (const char *)NULL;
}
CORE EigenMethod method_packed(const KnownMethod *w, int n, bool roots, bool f64, int power,
                               int bucket)
{
    return (void)w, (void)n, (void)roots, (void)f64, (void)power, (void)bucket, EIGEN_BY_SIZE;
}
#endif

#ifdef OPTC_MATRICES_H         /* the package has functions of matrices */
CORE optc_status no_gpu_products(const char *call)
{
    return fail(OPTC_ERROR_UNAVAILABLE,
                "%s: this package has no GPU code: it was made without --arch", call);
}

CORE optc_status multiply_gpu(optc_engine *e, const Multiply *x)
{
    return (void)e, no_gpu_products(x->call);
}

CORE optc_status kron_gpu(optc_engine *e, const Multiply *x)
{
    return (void)e, no_gpu_products(x->call);
}

CORE optc_status matrices_load(optc_engine *e, void *stream, const char *call, MatrixKernel which)
{
    return (void)e, (void)stream, (void)which, no_gpu_products(call);
}
#endif
