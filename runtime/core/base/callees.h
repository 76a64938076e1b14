/* Callees on the CPU, as its device calls them. runtime/core/matrix implements them, and
 * no_matrix_calls.h in packages without products. */
#ifndef OPTC_CORE_CALLEES_H
#define OPTC_CORE_CALLEES_H
#include "runtime/core/base/core.h"

typedef struct CalleeInfo {
    const char *name;
    double (*flops)(const Program *p, const ProgCall *c, Shape s);
    /* without regard to the tensors' shapes */
    optc_status (*check)(const Program *p, const ProgStage *s);
    /* CPU jobs, independent of each other */
    int64_t (*jobs)(const Program *p, const ProgCall *c, Shape s);
    /* thread: index of the calling thread in its team */
    void (*run)(const optc_binding *b, const ProgCall *c, const Tensor *t, int64_t job, int thread);
    /* bytes of scratch memory per CPU thread; NULL: 0 */
    int64_t (*scratch)(const Program *p, const ProgCall *c, Shape s);
} CalleeInfo;
CORE const CalleeInfo *callee_info(const ProgCall *c);
CORE optc_status cpu_calls(optc_binding *b);
/* loads the BLAS of a rule with products; a failure is reported when the rule is bound */
CORE void cpu_calls_load(const optc_rule *r);
CORE int64_t cpu_call_bytes(const optc_binding *b);
/* appends "; " and how products are computed; appends nothing for rules without products */
CORE void cpu_call_path(const optc_rule *r, char *text, size_t n);
#endif
