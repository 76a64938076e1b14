/* Replaces the sources of runtime/core/matrix in packages of rules without products. The rest of
 * the core calls these functions only where the right answer is that there is nothing to do. */
#define NO_MATRIX_CALLS
CORE optc_status cpu_calls(optc_binding *b) { return (void)b, OPTC_OK; }
CORE void cpu_calls_load(const optc_rule *r) { (void)r; }
CORE void cpu_call_path(const optc_rule *r, char *text, size_t n) { (void)r, (void)text, (void)n; }
CORE int64_t cpu_call_bytes(const optc_binding *b) { return (void)b, 0; }
CORE const CalleeInfo *callee_info(const ProgCall *c) { return (void)c, (const CalleeInfo *)NULL; }
CORE double call_flops(const Program *p, const ProgCall *c, Shape s)
{
    return (void)p, (void)c, (void)s, 0.0;
}
CORE double call_cost(const Program *p, const ProgStage *s, Shape shape)
{
    return (void)p, (void)s, (void)shape, 0.0;
}
CORE const char *call_kernel(const Program *p, int k)
{
    return (void)p, (void)k, (const char *)NULL;
}
CORE EigenMethod method_packed(const KnownMethod *w, int n, bool roots, bool f64, int power,
                               int bucket)
{
    return (void)w, (void)n, (void)roots, (void)f64, (void)power, (void)bucket, EIGEN_BY_SIZE;
}
CORE bool call_conditions(const Program *p) { return (void)p, false; }
CORE void gpu_call_path(const optc_rule *r, char *buf, size_t n) { (void)r, (void)n, *buf = 0; }
CORE int64_t gpu_call_bytes(const optc_binding *b) { return (void)b, 0; }
CORE optc_status calls_bind(optc_binding *b) { return (void)b, OPTC_OK; }
CORE void calls_unbind(optc_binding *b) { (void)b; }
CORE optc_status calls_update(optc_binding *b) { return (void)b, OPTC_OK; }
CORE size_t calls_slots_bytes(optc_binding *b, CallSlots *s) { return (void)b, (void)s, (size_t)0; }
CORE optc_status calls_slots_send(optc_binding *b, CallSlots *s, CUdeviceptr memory)
{
    return (void)b, (void)s, (void)memory, OPTC_OK;
}
CORE void calls_slots_select(optc_binding *b, const CallSlots *s) { (void)b, (void)s; }
CORE optc_status calls_slots_update(optc_binding *b, CallSlots *s)
{
    return (void)b, (void)s, OPTC_OK;
}
CORE void calls_slots_count(const optc_binding *b, int *sets, int *groups)
{
    (void)b, *sets = 0, *groups = 0;
}
CORE const struct GpuCall *calls_of(const optc_binding *b, const ProgStage *s, int batch)
{
    return (void)b, (void)s, (void)batch, (const struct GpuCall *)NULL;
}
CORE optc_status calls_launch(optc_binding *b, const struct GpuCall *c, bool scheduled)
{
    return (void)b, (void)c, (void)scheduled, OPTC_OK;
}
CORE void calls_need(const optc_binding *b, bool *need) { (void)b, (void)need; }
CORE void calls_warm(optc_binding *b) { (void)b; }
CORE optc_status calls_probe(optc_binding *b, LaunchList *p) { return (void)b, (void)p, OPTC_OK; }
CORE CUstream calls_stream(const optc_binding *b) { return (void)b, (CUstream)NULL; }
CORE int64_t calls_body_nodes(const optc_binding *b) { return (void)b, 0; }
CORE optc_status roots_f32_check(optc_binding *b, const LaunchList *p)
{
    return (void)b, (void)p, OPTC_OK;
}
CORE optc_status roots_f32_save(optc_binding *b, const LaunchList *p)
{
    return (void)b, (void)p, OPTC_OK;
}
CORE void phases_bind(optc_binding *b) { (void)b; }
CORE optc_status region_of(optc_binding *b, int entry, bool launches, LaunchList **out)
{
    return (void)b, (void)entry, (void)launches, (void)out, OPTC_OK;
}
CORE optc_status region_capture(optc_binding *b, const LaunchList *x)
{
    return (void)b, (void)x, OPTC_OK;
}
